"""A relay of the demo, a process of its own: it carries out the actions that messages of an outbox carry.

It works until it is ended. A relay that dies loses nothing: its claim ends, and what may have been sent is found out.
"""

import argparse
import json

from client import Ledger, send


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--provider", required=True)
    parser.add_argument("--path", required=True, help="where the provider makes what the messages ask for")
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--outbox", required=True)
    parser.add_argument("--lease", type=float, required=True, help="seconds")
    parser.add_argument("--name", required=True)
    arguments = parser.parse_args()
    ledger = Ledger(arguments.dsn)
    while True:
        message = ledger.wait_for("idem_outbox_claim", outbox=arguments.outbox, max=1, lease_seconds=arguments.lease,
                                  relay=arguments.name)
        made = send(arguments.provider, arguments.path,
                    {**message["payload"], "client_reference": str(message["action_id"])})
        claim = {"outbox": arguments.outbox, "id": message["id"], "claim_id": message["claim_id"]}
        if made is None:
            # No proof that nothing happened: the action is unknown now, and the message waits.
            ledger.call("idem_outbox_nack", **claim, error="no answer")
        else:
            ledger.call("idem_outbox_ack", **claim, response=json.dumps(made), resource_id=made["id"])


if __name__ == "__main__":
    main()
