"""Read-only transactions and hot standbys: 25006 for what writes, answers for what reads."""

import os
import shutil
import subprocess

import pytest

from cluster import SUPERUSER, Cluster
from sessions import commit, reserve, sqlstate, status, value, wait_until

ID = "00000000-0000-8000-8000-000000000000"
TOKEN = "11111111-1111-4111-8111-111111111111"
WRITING = [
    "SELECT * FROM idem_reserve('k', '{}')", f"SELECT idem_commit('{ID}', '{TOKEN}')",
    f"SELECT idem_mark_unknown('{ID}', '{TOKEN}')", f"SELECT idem_fail('{ID}', '{TOKEN}', 'refused')",
    f"SELECT idem_renew('{ID}', '{TOKEN}')", f"SELECT idem_release('{ID}', '{TOKEN}')",
    f"SELECT idem_add_evidence('{ID}', '{TOKEN}', 'applied')",
    f"SELECT * FROM idem_resolve('{ID}', '{TOKEN}', 'applied')", "SELECT * FROM idem_sweep()",
    "SELECT idem_register_action_type('t', 'read_only')"]
READING = ["SELECT * FROM idem_status('k')", f"SELECT * FROM idem_status_by_id('{ID}')",
           "SELECT idem_fingerprint('{}'), idem_canonical('{}'), idem_action_id('k'), idem_key('a')",
           "SELECT * FROM idem_actions", "SELECT * FROM idem_overdue", "SELECT * FROM idem_unresolved"]


@pytest.mark.parametrize("statement", WRITING)
def test_read_only_transaction_refuses_writers(conn, statement):
    """Also where nothing would be written in the end, so that a wrong router is noticed at once."""
    conn.execute("BEGIN READ ONLY")
    assert sqlstate(conn.execute, statement) == "25006"
    conn.execute("ROLLBACK")


def test_read_only_transaction_refuses_even_a_replay(conn, key):
    """A replay writes nothing, but a router that sends it to a replica will send the next grant there too."""
    commit(conn, reserve(conn, key))
    conn.execute("BEGIN READ ONLY")
    assert sqlstate(reserve, conn, key) == "25006"
    conn.execute("ROLLBACK")


@pytest.mark.parametrize("statement", READING)
def test_read_only_transaction_serves_readers(conn, statement):
    """Status and fingerprints belong on replicas too."""
    conn.execute("BEGIN READ ONLY")
    conn.execute(statement)
    conn.execute("COMMIT")


def test_hot_standby():
    """The same on a real standby, and after its promotion the ledger goes on where it was."""
    with Cluster(settings={"fsync": False, "wal_level": "replica", "max_wal_senders": 4}, preload=False) as primary:
        primary.psql("CREATE EXTENSION pg_idem")
        with primary.connect() as conn:
            done, open_one = reserve(conn, "done"), reserve(conn, "open")
            commit(conn, done, response={"n": 1})
        standby = Cluster(settings={"fsync": False}, preload=False)
        try:
            shutil.rmtree(standby.data)
            owner = {"user": SUPERUSER, "group": SUPERUSER} if os.geteuid() == 0 else {}
            subprocess.run([primary.bindir / "pg_basebackup", "-d", primary.dsn(), "-D", standby.data, "-R", "-X",
                            "stream", "-c", "fast"], check=True, cwd=standby.dir, **owner)
            standby._configure({"unix_socket_directories": standby.dir})
            standby.start()
            with standby.connect() as conn:
                for statement in WRITING:
                    assert sqlstate(conn.execute, statement) == "25006", statement
                for statement in READING:
                    conn.execute(statement)
                assert status(conn, "done").response == {"n": 1}
                value(conn, "SELECT pg_promote()")
                wait_until(lambda: not value(conn, "SELECT pg_is_in_recovery()"))
                assert reserve(conn, "done").decision == "replay"
                assert reserve(conn, "open").decision == "pending"
                assert commit(conn, open_one) == "committed"
        finally:
            standby.close()
