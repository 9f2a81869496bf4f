"""One worker of the demo, a process of its own: it wants one refund made, once, however often it is asked.

It works the way any client of pg_idem does: reserve in a transaction that has committed before anything is sent
(the connection is in autocommit mode), send, say how it ended. What it does goes to standard output, one JSON object
a line, for demo.py to print.
"""

import argparse
import http.client
import json
import sys
import urllib.request
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

LINE = 88


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--provider", required=True)
    parser.add_argument("--request", required=True, help="JSON, sent to PostgreSQL as it stands here")
    parser.add_argument("--dsn")
    parser.add_argument("--key")
    parser.add_argument("--lease", type=float, help="seconds")
    parser.add_argument("--naive", action="store_true", help="no ledger: on an error, send again")
    parser.add_argument("--on-your-marks", action="store_true", help="start when a line arrives on standard input")
    arguments = parser.parse_args()
    if arguments.naive:
        return naive(arguments)
    with psycopg.connect(arguments.dsn, autocommit=True, row_factory=dict_row) as connection:
        if arguments.on_your_marks:
            emit(ready=True)
            sys.stdin.readline()
        Worker(connection, arguments).work()


def naive(arguments):
    for _ in range(2):
        if send(arguments.provider, json.loads(arguments.request)):
            return


class Worker:
    def __init__(self, connection, arguments):
        self.connection = connection
        self.provider = arguments.provider
        self.request = arguments.request
        self.reservation = {"key": arguments.key, "request": arguments.request, "action_type": "refund",
                            "can_reconcile": True}
        if arguments.lease:
            self.reservation["lease_seconds"] = arguments.lease

    def work(self):
        action = self.call("idem_reserve", **self.reservation)
        while not action["granted"] and action["decision"] in ("pending", "unknown"):
            # Somebody else has it. Wait for the outcome, at most until responsibility can change hands.
            action = self.call("idem_reserve", **self.reservation, wait_seconds=action["retry_after_seconds"])
        if action["granted"]:
            self.execute(action)
        elif action["decision"] == "reconcile":
            self.reconcile(action)

    def execute(self, action):
        """The only place that sends."""
        attempt = {"action_id": action["action_id"], "attempt_id": action["attempt_id"]}
        # The provider stores our reference with the refund, so that it can be asked for it later.
        request = {**json.loads(self.request), "client_reference": str(action["action_id"])}
        refund = send(self.provider, request)
        if refund is None:
            # Not a failure: the refund may have been made.
            self.call("idem_mark_unknown", **attempt, reason="no answer")
        else:
            self.call("idem_commit", **attempt, response=json.dumps(refund), resource_id=refund["id"])

    def reconcile(self, action):
        """Finds out what an earlier attempt did, instead of repeating it."""
        attempt = {"action_id": action["action_id"], "attempt_id": action["attempt_id"]}
        path = f"/refunds?client_reference={quote(str(action['action_id']))}"
        emit(do=f"GET {path}")
        with urllib.request.urlopen(self.provider + path, timeout=30) as answer:
            refunds = json.load(answer)
        emit(say=json.dumps(refunds))
        if refunds:
            self.call("idem_resolve", **attempt, finding="applied", response=json.dumps(refunds[0]),
                      resource_id=refunds[0]["id"])
        else:
            self.call("idem_resolve", **attempt, finding="not_applied")

    def call(self, function, **arguments):
        """Runs SELECT * FROM function(…) with the arguments written out, so that what is shown is what was sent."""
        written = [f"{name} => {sql.Literal(plain(value)).as_string(self.connection)}"
                   for name, value in arguments.items()]
        statement = wrap(f"SELECT * FROM {function}(", written, ");")
        emit(do=statement)
        row = self.connection.execute(statement).fetchone()
        emit(got={name: plain(value) for name, value in row.items()}, function=function)
        return row


def send(provider, request):
    """Asks the provider for a refund. Returns the refund, or None where no answer came."""
    body = json.dumps(request)
    emit(do=wrap("POST /refunds {", [json.dumps({name: value})[1:-1] for name, value in request.items()], "}"))
    try:
        with urllib.request.urlopen(f"{provider}/refunds", data=body.encode(), timeout=30) as answer:
            refund = json.load(answer)
    except (OSError, http.client.HTTPException) as error:
        emit(say=f"no answer: {error}")
        return None
    emit(say=json.dumps(refund))
    return refund


def plain(value):
    """A value as JSON and SQL text can hold it; uuids and timestamps become their text."""
    return value if value is None or isinstance(value, (bool, int, float, str, dict, list)) else str(value)


def wrap(start, parts, end):
    """Joins parts by commas, breaking lines that would grow too long."""
    lines = [start]
    for number, part in enumerate(parts):
        part += ", " if number < len(parts) - 1 else end
        if len(lines[-1]) + len(part) > LINE:
            lines.append("    ")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def emit(**event):
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    main()
