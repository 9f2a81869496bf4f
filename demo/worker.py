"""One worker of the demo, a process of its own: it wants one effect made, once, however often it is asked.

It works the way any client of pg_idem does: reserve in a transaction that has committed before anything is sent
(the connection is in autocommit mode), ask the gate where the type has one, send, say how it ended.
"""

import argparse
import json
import sys
from urllib.parse import quote

from client import Ledger, emit, look_up, report, send


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--provider", required=True)
    parser.add_argument("--path", default="/refunds", help="where the provider makes it")
    parser.add_argument("--request", required=True, help="JSON, sent to PostgreSQL as it stands here")
    parser.add_argument("--dsn")
    parser.add_argument("--key")
    parser.add_argument("--type", default="refund")
    parser.add_argument("--compensates", help="the id of the action to compensate")
    parser.add_argument("--cannot-reconcile", action="store_true", help="leave it to others what an attempt did")
    parser.add_argument("--lease", type=float, help="seconds")
    parser.add_argument("--naive", action="store_true", help="no ledger: on an error, send again")
    parser.add_argument("--on-your-marks", action="store_true", help="start when a line arrives on standard input")
    arguments = parser.parse_args()
    if arguments.naive:
        return naive(arguments)
    ledger = Ledger(arguments.dsn)
    if arguments.on_your_marks:
        emit(ready=True)
        sys.stdin.readline()
    Worker(ledger, arguments).work()


def naive(arguments):
    for _ in range(2):
        if send(arguments.provider, arguments.path, json.loads(arguments.request)):
            return


class Worker:
    def __init__(self, ledger, arguments):
        self.ledger = ledger
        self.provider = arguments.provider
        self.path = arguments.path
        self.request = arguments.request
        self.reservation = {"key": arguments.key, "request": arguments.request}
        if arguments.compensates:
            # Its type is the one that the parent's type names.
            self.function, self.reservation = "idem_compensate", {"parent": arguments.compensates, **self.reservation}
        else:
            self.function, self.reservation["action_type"] = "idem_reserve", arguments.type
        if not arguments.cannot_reconcile:
            self.reservation["can_reconcile"] = True
        if arguments.lease:
            self.reservation["lease_seconds"] = arguments.lease

    def work(self):
        action = self.reserve()
        while not action["granted"] and action["decision"] in ("pending", "unknown"):
            # Somebody else has it. Wait for the outcome, at most until responsibility can change hands.
            action = self.reserve(wait_seconds=action["retry_after_seconds"])
        if action["granted"]:
            self.execute(action)
        elif action["decision"] == "reconcile":
            self.reconcile(action)

    def reserve(self, **more):
        return self.ledger.call(self.function, **self.reservation, **more)

    def execute(self, action):
        """The only place that sends."""
        attempt = {"action_id": action["action_id"], "attempt_id": action["attempt_id"]}
        if action["provider_key"] is None:
            # The type marks its dispatch. This is the last moment to stop it.
            self.ledger.call("idem_dispatch", **attempt)
        # The provider stores our reference with the effect, so that it can be asked for it later.
        request = {**json.loads(self.request), "client_reference": str(action["action_id"])}
        made = send(self.provider, self.path, request)
        if made is None:
            # Not a failure: it may have happened.
            self.ledger.call("idem_mark_unknown", **attempt, reason="no answer")
        else:
            self.ledger.call("idem_commit", **attempt, response=json.dumps(made), resource_id=made["id"])

    def reconcile(self, action):
        """Finds out what an earlier attempt did, instead of repeating it."""
        found = look_up(self.provider, f"{self.path}?client_reference={quote(str(action['action_id']))}")
        report(self.ledger, action, found)


if __name__ == "__main__":
    main()
