"""A server whose background worker is at work, for the tests of the worker: fixtures and a few words."""

import time

import psycopg
import pytest
from psycopg import sql

from cluster import Cluster
from sessions import Sessions, reserve, value, wait_until

PATIENCE = 4  # seconds: what the contract gives a database's owner to wait for the worker


@pytest.fixture(scope="module")
def workers():
    settings = {"fsync": False, "autovacuum": False, "max_prepared_transactions": 5, "max_connections": 40,
                "pg_idem.databases": "*", "pg_idem.naptime": "10ms"}
    with Cluster(settings=settings) as cluster:
        yield cluster


@pytest.fixture
def connect(workers, request):
    """Sessions in a database of the test's own, with the extension; dropped afterwards, so that rounds stay short."""
    name = request.node.name[:60]
    workers.createdb(name)
    sessions = Sessions(workers, name)
    sessions().execute("CREATE EXTENSION pg_idem")
    yield sessions
    sessions.close()
    with workers.connect() as conn:
        conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def conn(connect):
    return connect()


@pytest.fixture
def complaints(workers):
    """What the server has complained about since the test began; a statement of the test's own is no complaint."""
    before = len(workers.log())
    words = ("pg_idem", "exited with exit code", "FATAL", "PANIC", "ERROR")
    return lambda: [line for line in workers.log()[before:].splitlines()
                    if any(word in line for word in words) and "STATEMENT" not in line]


def inside(cluster, name, **kw):
    """A session in a database whose name a connection string would not take."""
    return psycopg.connect(cluster.dsn(), autocommit=True, dbname=name, **kw)


def seen(conn):
    """The worker's visit that began after now has ended."""
    for _ in range(2):
        before = value(conn, "SELECT clock_timestamp()")
        wait_until(lambda: value(conn, "SELECT last_visit_at > %s FROM idem_worker_status", (before,)), timeout=60)


def state(conn, key):
    return value(conn, "SELECT state FROM idem_actions WHERE key = %s", (key,))


def becomes(conn, key, expected):
    wait_until(lambda: state(conn, key) == expected, timeout=60)


def dead(conn, key, **named):
    """An attempt whose worker died at once."""
    return reserve(conn, key, **{"lease_seconds": 0.01, **named})


def patiently(conn, statement, *names):
    """The statement ends within PATIENCE, or on a machine that is busy with other things within that and what making and
    dropping a database takes there by itself."""
    def duration(*statements):
        began = time.monotonic()
        for each in statements:
            conn.execute(each)
        return time.monotonic() - began

    took = duration(sql.SQL(statement).format(*map(sql.Identifier, names)))
    assert took < PATIENCE or took < PATIENCE + duration(
        "CREATE DATABASE nobodys TEMPLATE template0 ALLOW_CONNECTIONS false", "DROP DATABASE nobodys"), statement
