"""An asynchronous standby takes over: exactly what is forgotten, and what holds all the same.

That of a synchronous one is a crash like any other: tests/crash/run.py --kill primary.
"""

import pytest

from cluster import Cluster
from sessions import commit, end, outlive, reserve, row, sqlstate, status, value, wait_until
from standby import SETTINGS, promote, standby_of

FORGOTTEN = "what the old primary said after the standby had last heard of it"


@pytest.fixture
def failover():
    """Does `before` on a primary, lets the standby catch up, cuts it off, does `after`; returns the new primary's session
    and what the two returned."""
    opened = []

    def run(before, after):
        primary = Cluster(settings={"fsync": False, "autovacuum": False, **SETTINGS})
        opened.append(primary)
        primary.start()
        primary.psql("CREATE EXTENSION pg_idem; SELECT idem_register_action_type('status', 'idempotent_mutation'),"
                     "idem_register_action_type('payment', 'deduplicated_creation')")
        standby = standby_of(primary)
        opened.append(standby)
        with primary.connect() as conn, standby.connect() as watcher:
            first = before(conn)
            reached = value(conn, "SELECT pg_current_wal_insert_lsn()::text")
            wait_until(lambda: value(watcher, "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (reached,)))
            watcher.execute("ALTER SYSTEM SET primary_conninfo = ''")
            watcher.execute("SELECT pg_reload_conf()")
            wait_until(lambda: not value(watcher, "SELECT count(*) FROM pg_stat_wal_receiver"))
            second = after(conn, first)
        primary.kill9()
        promote(standby)
        conn = standby.connect()
        opened.append(conn)
        return conn, first, second
    yield run
    for thing in reversed(opened):
        thing.close()


def before(conn):
    """What the standby has heard."""
    got = {key: reserve(conn, key, action_type="payment") for key in ("done", "running", "ended late", "handed over")}
    commit(conn, got["done"], response={"n": 1})
    end(conn, "idem_mark_unknown", got["handed over"])
    got["status"] = reserve(conn, "status", action_type="status", lease_seconds=0.01)
    return got


def after(conn, got):
    """And what not: all of it answered, and synchronous_commit is on."""
    outlive(conn, got["status"].lease_expires_at)
    new = {"granted": reserve(conn, "granted", action_type="payment"),
           "reconciling": reserve(conn, "handed over", action_type="payment", can_reconcile=True),
           "second": reserve(conn, "status", action_type="status")}
    assert new["reconciling"].decision == "reconcile" and new["second"].attempt == 2
    assert commit(conn, got["ended late"], response={"n": 2}) == "committed"
    return new


def test_what_is_forgotten(failover):
    """The lost promise, shown: an acknowledged grant is unknown to the new primary, which grants the action again."""
    conn, old, lost = failover(before, after)
    # Everything the standby had heard holds.
    assert reserve(conn, "done", action_type="payment").decision == "replay"
    assert reserve(conn, "running", action_type="payment").decision == "pending"
    assert commit(conn, old["running"]) == "committed"
    # A lost commit leaves an attempt that seems to run: no second grant, and its owner can say it again.
    assert not reserve(conn, "ended late", action_type="payment").granted
    assert commit(conn, old["ended late"], response={"n": 2}) == "committed"
    # A lost grant: the same first attempt is handed out a second time.
    assert sqlstate(commit, conn, lost["granted"]) == "ID004", "its owner is told that nobody knows it"
    again = reserve(conn, "granted", action_type="payment")
    assert again.decision == "execute" and again.attempt == lost["granted"].attempt == 1, FORGOTTEN
    # Whoever holds a token from before is refused, and fences have risen as the clock has.
    for owner, other in ((lost["granted"], again), (lost["second"], reserve(conn, "status", action_type="status"))):
        assert other.decision == "execute" and other.attempt_id != owner.attempt_id and other.fence > owner.fence
        assert sqlstate(commit, conn, owner) == "ID002"
        assert sqlstate(end, conn, "idem_renew", owner) == "ID002"
        assert commit(conn, other) == "committed"
    assert sqlstate(end, conn, "idem_resolve", lost["reconciling"], finding="applied") == "ID002"
    assert status(conn, "handed over").state == "unknown"


def test_after_restore_keeps_the_older_epoch_from_repeating(failover):
    """Called before the applications come back: what was under way is unknown, and is looked into before anything else."""
    conn, old, lost = failover(before, after)
    assert row(conn, "SELECT * FROM idem_after_restore('failover')").turned_unknown >= 3
    for key in ("running", "ended late", "handed over"):
        found = reserve(conn, key, action_type="payment")
        assert not found.granted and found.state == "unknown", key
    # A repeat of what may be repeated is allowed still.
    assert reserve(conn, "status", action_type="status").decision == "execute"
    assert reserve(conn, "done", action_type="payment").decision == "replay"
    # No attempt of before goes on; what its owner knows is kept, and shuts out the contrary.
    assert sqlstate(commit, conn, old["ended late"]) == "ID002"
    assert commit(conn, old["ended late"], resource_id="r", on_lost="record") == "superseded"
    # What the new primary never heard of, it cannot hold back: only the provider knows.
    assert reserve(conn, "granted", action_type="payment").decision == "execute", FORGOTTEN
