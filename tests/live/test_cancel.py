"""Cancelled at any moment, a call raises 57014 and nothing else; the session, its pins and its locks are in order."""

import random
import threading
import time
from pathlib import Path

import psycopg
import pytest

from sessions import new_token, reserve, rows, sqlstate, value

ROUNDS = 250  # for each of a dozen calls


def prepare(conn):
    conn.execute("SELECT idem_register_action_type('t', 'idempotent_mutation', 'local', max_attempts => 1000000)")
    conn.execute("""CREATE OR REPLACE FUNCTION big() RETURNS jsonb LANGUAGE sql AS $$
        SELECT jsonb_object_agg('k' || n, repeat('x', 20)) FROM generate_series(1, 300) AS n $$""")


# Every statement does its work often, so that a cancel falls into it.
MANY = "FROM generate_series(1, 30) AS n, LATERAL "
STATEMENTS = {
    "reserve": f"SELECT count(*) {MANY} idem_reserve(%(key)s || n, '{{}}', action_type => 't')",
    "cycle": f"SELECT idem_commit(r.action_id, r.attempt_id, big()) {MANY} idem_reserve(%(key)s || n, big(), action_type => 't') AS r",
    "replay": f"SELECT count(*) {MANY} idem_reserve('done', big(), worker => n::text)",
    "mark": f"SELECT idem_mark_unknown(r.action_id, r.attempt_id) {MANY} idem_reserve(%(key)s || n) AS r",
    "fail": f"SELECT idem_fail(r.action_id, r.attempt_id, 'refused', retryable => true) {MANY} idem_reserve(%(key)s || n) AS r",
    "release": f"SELECT idem_release(r.action_id, r.attempt_id) {MANY} idem_reserve(%(key)s || n) AS r",
    "renew": f"SELECT idem_renew(r.action_id, r.attempt_id) {MANY} idem_reserve(%(key)s || n) AS r",
    "evidence": f"SELECT idem_add_evidence(r.action_id, r.attempt_id, 'inconclusive') {MANY} idem_reserve(%(key)s || n) AS r",
    "sweep": "SELECT idem_sweep(n) FROM generate_series(1, 30) AS n",
    "status": f"SELECT count(*) {MANY} idem_status('k' || n)",
    "fingerprint": "SELECT idem_fingerprint(big()), idem_canonical(big()), idem_fingerprint_text(big()::text) FROM generate_series(1, 30)",
    "twin": "SELECT * FROM idem_reserve('twin')",
    "outcome": "SELECT * FROM idem_reserve('running', wait_seconds => 5)",
    "register": "SELECT idem_register_action_type('c', 'read_only', max_attempts => 1 + (random() * 1000)::int)",
}


@pytest.fixture(scope="module")
def ready(shared_cluster, dbname):
    with shared_cluster.connect(dbname) as conn, shared_cluster.connect(dbname, autocommit=False) as twin:
        prepare(conn)
        conn.execute("SELECT idem_commit(r.action_id, r.attempt_id, big()) FROM idem_reserve('done', big()) AS r")
        conn.execute("SELECT * FROM idem_reserve('running', lease_seconds => 3600)")
        reserve(twin, "twin", [])
        yield shared_cluster, conn


@pytest.mark.parametrize("name", list(STATEMENTS))
def test_cancel_in_a_loop(ready, connect, name):
    """Failure 127: a return inside a protected block, a pin or a snapshot left over shows in the next statement or the log."""
    cluster, observer = ready
    conn, canceller = connect(), connect()
    logged = len(cluster.log())
    stop, pid = threading.Event(), conn.info.backend_pid

    def cancelling():
        while not stop.is_set():
            time.sleep(random.random() * 0.004)  # where in the call it falls is the point
            canceller.execute("SELECT pg_cancel_backend(%s)", (pid,))
    canceller_thread = threading.Thread(target=cancelling)
    canceller_thread.start()
    seen = set()
    deadline = time.monotonic() + 12
    try:
        for n in range(ROUNDS):
            seen.add(sqlstate(conn.execute, STATEMENTS[name], {"key": f"{name}/{n}/"}))
            if time.monotonic() > deadline:
                break
    finally:
        stop.set()
        canceller_thread.join()
    sqlstate(conn.execute, "SELECT 1")
    assert "57014" in seen, "no cancel ever met the call"
    assert seen <= {None, "57014"}, seen
    assert value(conn, "SELECT pg_backend_pid()") == pid
    granted = rows(conn, "SELECT * FROM idem_reserve(%s)", (f"{name}/after/{new_token()}",))
    assert granted[0].granted
    assert rows(observer, "SELECT locktype, relation::regclass FROM pg_locks WHERE pid = %s AND locktype <> 'virtualxid'",
                (pid,)) == []
    noise = [line for line in cluster.log()[logged:].splitlines()
             if any(word in line for word in ("leak", "WARNING", "PANIC", "FATAL", "XX000", "still referenced"))]
    assert noise == []


def test_terminate_in_a_loop(ready, connect):
    """The same with pg_terminate_backend: the cluster lives, and no grant of a killed session stays behind."""
    cluster, observer = ready
    for n in range(60):
        conn = connect()
        pid = conn.info.backend_pid

        def kill(pid=pid):
            time.sleep(random.random() * 0.006)
            observer.execute("SELECT pg_terminate_backend(%s)", (pid,))
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            for k in range(100):
                conn.execute(STATEMENTS["cycle"], {"key": f"killed/{n}/{k}/"})
        except psycopg.Error as error:
            assert error.sqlstate in ("57P01", None), error
        killer.join()
    assert value(observer, "SELECT count(*) FROM idem_actions WHERE key LIKE 'killed/%' AND state <> 'committed'") == 0


def test_no_error_is_caught_and_gone_on_from():
    """Failure 91: without a subtransaction around it, a swallowed error leaves locks and memory to nobody."""
    source = {path: path.read_text() for path in (Path(__file__).resolve().parents[2] / "src").rglob("*.rs")}
    assert len(source) > 30
    for path, text in source.items():
        for word in ("PgTryBuilder", "catch_unwind", "PG_exception_stack", "FlushErrorState", "sigsetjmp"):
            assert word not in text, path
