"""What the demo's processes have in common: how they talk to PostgreSQL and to the provider, and how they tell of it.

What they do goes to standard output, one JSON object a line, for stage.py to print.
"""

import http.client
import json
import time
import urllib.request

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

LINE = 88
# Seconds between two looks of who waits for work.
PAUSE = 0.05


class Ledger:
    """A connection in autocommit mode: what a call says has been committed when it returns."""

    def __init__(self, dsn):
        self.connection = psycopg.connect(dsn, autocommit=True, row_factory=dict_row)

    def call(self, function, **arguments):
        """Runs SELECT * FROM function(…) with the arguments written out, so that what is shown is what was sent."""
        statement = self._begin(function, arguments)
        return self._end(function, self.connection.execute(statement).fetchone())

    def wait_for(self, function, **arguments):
        """Makes a call again and again until it returns a row."""
        statement = self._begin(function, arguments)
        row = self.connection.execute(statement).fetchone()
        if row is None:
            emit(say="nothing yet, so it asks again and again")
        while row is None:
            time.sleep(PAUSE)
            row = self.connection.execute(statement).fetchone()
        return self._end(function, row)

    def _begin(self, function, arguments):
        written = [f"{name} => {sql.Literal(plain(value)).as_string(self.connection)}"
                   for name, value in arguments.items()]
        statement = wrap(f"SELECT * FROM {function}(", written, ");")
        emit(do=statement)
        return statement

    def _end(self, function, row):
        emit(got={name: plain(value) for name, value in row.items()}, function=function)
        return row


def send(provider, path, request):
    """Asks the provider for an effect. Returns what it made, or None where no answer came."""
    body = json.dumps(request)
    emit(do=wrap(f"POST {path} {{", [json.dumps({name: value})[1:-1] for name, value in request.items()], "}"))
    try:
        with urllib.request.urlopen(provider + path, data=body.encode(), timeout=30) as answer:
            made = json.load(answer)
    except (OSError, http.client.HTTPException) as error:
        emit(say=f"no answer: {error}")
        return None
    emit(say=json.dumps(made))
    return made


def look_up(provider, path):
    """Asks the provider what it has made."""
    emit(do=f"GET {path}")
    with urllib.request.urlopen(provider + path, timeout=30) as answer:
        found = json.load(answer)
    emit(say=json.dumps(found))
    return found


def report(ledger, reconciling, found):
    """Tells the ledger what a look-up found. Returns what idem_resolve made of it."""
    attempt = {"action_id": reconciling["action_id"], "attempt_id": reconciling["attempt_id"]}
    if found:
        return ledger.call("idem_resolve", **attempt, finding="applied", response=json.dumps(found[0]),
                           resource_id=found[0]["id"])
    return ledger.call("idem_resolve", **attempt, finding="not_applied")


def plain(value):
    """A value as JSON and SQL text can hold it; uuids and timestamps become their text."""
    if isinstance(value, bytes):
        return "\\x" + value.hex()
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
