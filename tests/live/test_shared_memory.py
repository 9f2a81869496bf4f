"""Shared memory and its locks. Failure 125: a lock that an error leaves held hangs everybody who comes after.

Without preloading there is none: test_metrics.py shows what is said then.
"""

import random
import re
import threading
import time
from pathlib import Path

import psycopg
import pytest

from cluster import Cluster
from sessions import reserve, rows, value, wait_until

SECONDS = 6
# Each goes through shared memory often, so that what interrupts it falls there too.
MANY = "FROM generate_series(1, 50) AS n, LATERAL "
STATEMENTS = {
    "conflict": f"SELECT count(*) {MANY} idem_reserve('k', to_jsonb(ARRAY[n]))",
    "replay": f"SELECT count(*) {MANY} idem_reserve('done')",
    "conflicts": f"SELECT count(*) {MANY} idem_recent_conflicts()",
    "counts": f"SELECT count(*) {MANY} idem_live_counts()",
    "written down": "SELECT idem_add_up_counts() FROM generate_series(1, 5)",
    "error": f"SELECT count(*) {MANY} idem_reserve('k', to_jsonb(ARRAY[n])) AS r WHERE 1 / (n - 50) < r.attempt",
}


@pytest.fixture
def preloaded():
    settings = {"fsync": False, "autovacuum": False, "pg_idem.databases": "postgres", "pg_idem.naptime": "1ms",
                "log_error_verbosity": "verbose"}
    with Cluster(settings=settings) as cluster:
        cluster.psql("CREATE EXTENSION pg_idem; SELECT granted FROM idem_reserve('k', lease_seconds => 3600);"
                     "SELECT idem_commit(action_id, attempt_id) FROM idem_reserve('done')")
        yield cluster


def test_no_error_leaves_a_lock_held(preloaded):
    """Time-outs, cancels, terminations and errors of the statement itself, in sessions that all use the same memory."""
    stop, seen, pids = threading.Event(), set(), {}

    def work(name):
        conn = None
        while not stop.is_set():
            try:
                if conn is None or conn.closed:
                    conn = preloaded.connect()
                    pids[name] = conn.info.backend_pid
                conn.execute(f"SET statement_timeout = {random.choice((0, 1, 2, 3))}")
                conn.execute(STATEMENTS[name])
            except psycopg.Error as error:
                seen.add(error.sqlstate)
        conn.close()

    threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in STATEMENTS]
    with preloaded.connect() as conn:
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline or not {"57014", "57P01", "22012"} <= seen:
            assert time.monotonic() < deadline + 60, seen
            time.sleep(random.random() * 0.005)  # where it falls is the point
            way = "pg_terminate_backend" if random.random() < 0.1 else "pg_cancel_backend"
            if pids:
                conn.execute(f"SELECT {way}(%s)", (random.choice(list(pids.values())),))
        stop.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a session hangs"
        assert seen - {None} == {"57014", "57P01", "22012"}
        # Everybody gets in, each lock one after the other.
        conn.execute("SET statement_timeout = '60s'")
        assert reserve(conn, "k", {"of": "another"}).decision == "conflict"
        assert len(rows(conn, "SELECT * FROM idem_recent_conflicts()")) == 512
        assert value(conn, "SELECT count(DISTINCT name) FROM idem_live_counts()") == 4
        last = value(conn, "SELECT last_visit_at FROM idem_worker_status")
        wait_until(lambda: value(conn, "SELECT last_visit_at FROM idem_worker_status") != last, timeout=60)
    noise = [line for line in preloaded.log().splitlines()
             if any(word in line for word in ("PANIC", "XX000", "leak", "terminated by signal", "still referenced"))]
    assert noise == []


def test_nothing_that_can_fail_happens_under_a_lock():
    """A guard with a name is held to the end of its block: no SQL, no report, no wait after it."""
    held = []
    for path in (Path(__file__).resolve().parents[2] / "src").rglob("*.rs"):
        text = path.read_text()
        for found in re.finditer(r"let (?:mut )?\w+ = [A-Z]+\.(?:exclusive|share)\(\);(.*?)\n}", text, re.S):
            held.append(path.name)
            for word in ("Spi", "transaction(", "raise", "log(", "sleep", "interrupts", "?;"):
                assert word not in found[1], path
    assert held == ["shared.rs"]
