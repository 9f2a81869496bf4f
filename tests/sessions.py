"""Sessions that wait on each other, for the live tests.

Nothing here sleeps to let another session come first: what has to have happened is looked at, with a deadline.
"""

import threading
import time
import uuid
from concurrent.futures import Future

import psycopg
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

ISOLATION = {
    "read committed": psycopg.IsolationLevel.READ_COMMITTED,
    "repeatable read": psycopg.IsolationLevel.REPEATABLE_READ,
    "serializable": psycopg.IsolationLevel.SERIALIZABLE,
}


def rows(conn, statement, parameters=None):
    """All rows of a query, as named tuples."""
    with conn.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(statement, parameters).fetchall()


def row(conn, statement, parameters=None):
    """The only row of a query: none or several fail."""
    [only] = rows(conn, statement, parameters)
    return only


def value(conn, statement, parameters=None):
    """The only value of a query."""
    [only] = row(conn, statement, parameters)
    return only


def _arguments(named):
    return ", ".join(f"{name} => %({name})s" for name in named)


def _adapted(named):
    return {name: Jsonb(given) if isinstance(given, (dict, list)) and name != "parts" else given
            for name, given in named.items()}


def reserve(conn, key, request=None, **named):
    """SELECT * FROM idem_reserve(...): exactly one row, whatever happens."""
    named = {"key": key, "request": {"amount": 5} if request is None else request, **named}
    return row(conn, f"SELECT * FROM idem_reserve({_arguments(named)})", _adapted(named))


def call(conn, function, **named):
    """The value of one function, called with named arguments."""
    return value(conn, f"SELECT {function}({_arguments(named)})", _adapted(named))


def resolve(conn, grant, finding, **named):
    """SELECT * FROM idem_resolve(...) for a reconciling grant."""
    named = {"action_id": grant.action_id, "attempt_id": grant.attempt_id, "finding": finding, **named}
    return row(conn, f"SELECT * FROM idem_resolve({_arguments(named)})", _adapted(named))


def end(conn, function, grant, **named):
    """An ending function for a grant: idem_commit, idem_fail, ..."""
    return call(conn, function, action_id=grant.action_id, attempt_id=grant.attempt_id, **named)


def commit(conn, grant, **named):
    return end(conn, "idem_commit", grant, **named)


def status(conn, key, tenant=""):
    return row(conn, "SELECT * FROM idem_status(%s, %s)", (key, tenant))


def sweep(conn, max_rows=1000):
    return row(conn, "SELECT * FROM idem_sweep(%s)", (max_rows,))


def sqlstate(function, *args, **named):
    """The SQLSTATE that a call raises, None when it raises nothing."""
    try:
        function(*args, **named)
    except psycopg.Error as error:
        return error.sqlstate or type(error).__name__
    return None


def new_token():
    return str(uuid.uuid4())


def wait_until(happened, timeout=60):
    """Looks until `happened()` is true and returns what it said; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        if said := happened():
            return said
        assert time.monotonic() < deadline, f"did not happen within {timeout} s"
        time.sleep(0.002)


def wait_for(observer, conn, *events):
    """Waits until the backend of `conn` itself waits for one of `events`: Extension, transactionid, tuple ..."""
    pid = conn.info.backend_pid
    query = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s AND state = 'active'"
    return wait_until(lambda: any(found.wait_event in events for found in rows(observer, query, (pid,))))


def outlive(conn, moment):
    """Returns once the server's clock has passed `moment`."""
    wait_until(lambda: value(conn, "SELECT clock_timestamp() > %s", (moment,)))


def check_btrees(conn, *tables):
    """Every row of the tables has its entry in each of their btrees, as far as the server has amcheck to say so."""
    if not value(conn, "SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'"):
        return
    conn.execute("CREATE EXTENSION IF NOT EXISTS amcheck")
    conn.execute("""SELECT bt_index_check(indexrelid, heapallindexed => true) FROM pg_index
        JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam
        WHERE indrelid = ANY (%s::text[]::regclass[]) AND amname = 'btree'""", (list(tables),))


def in_background(function, *args, **named):
    """Runs a call in a thread of its own; .result(timeout) gives what it returned or raised."""
    future = Future()

    def run():
        try:
            future.set_result(function(*args, **named))
        except BaseException as error:  # noqa: B902  (handed to whoever asks for the result)
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def together(*functions, timeout=60):
    """Runs calls that start at the same moment; what each returned, or the psycopg error it raised."""
    barrier = threading.Barrier(len(functions))

    def run(function):
        barrier.wait(timeout)
        try:
            return function()
        except psycopg.Error as error:
            return error

    return [future.result(timeout) for future in [in_background(run, function) for function in functions]]


class Sessions:
    """Connections to one database that are closed together."""

    def __init__(self, cluster, dbname):
        self.cluster, self.dbname, self._open = cluster, dbname, []

    def __call__(self, autocommit=True, isolation=None, **kw):
        conn = self.cluster.connect(self.dbname, autocommit=autocommit, **kw)
        if isolation:
            conn.isolation_level = ISOLATION[isolation]
        self._open.append(conn)
        return conn

    def close(self):
        for conn in self._open:
            conn.close()
