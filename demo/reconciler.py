"""The reconciler of the demo, a process of its own: it finds out what became of one action, and sends nothing.

The type's lookup_hint says where to look. "Not there" counts only when it was seen often enough, far enough apart, and
not too early; the ledger says when to look again, by handing the action out again.
"""

import argparse

from client import Ledger, look_up, report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--provider", required=True)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--type", required=True)
    arguments = parser.parse_args()
    ledger = Ledger(arguments.dsn)
    state = "unknown"
    while state == "unknown":
        action = ledger.wait_for("idem_reconcile_next", max=1, action_type=arguments.type, worker="reconciler")
        path = action["lookup_hint"].removeprefix("GET ").format(action_id=action["action_id"])
        state = report(ledger, action, look_up(arguments.provider, path))["state"]


if __name__ == "__main__":
    main()
