"""REPEATABLE READ and SERIALIZABLE: no answer from a stale snapshot except for what is over; 40001 is the honest one."""

import pytest

from sessions import commit, end, outlive, reserve, resolve, sqlstate, status, sweep, together, value

STRICT = ["repeatable read", "serializable"]


@pytest.fixture(params=STRICT)
def old(request, connect):
    """A session whose snapshot is taken by the first thing it does."""
    return connect(autocommit=False, isolation=request.param)


def look(conn):
    """Takes the transaction's snapshot."""
    value(conn, "SELECT count(*) FROM pg_class")


def test_a_whole_cycle_in_one_transaction(old, conn, key):
    """Nothing in these levels stands against the ordinary path."""
    got = reserve(old, key)
    assert commit(old, got, response={"n": 1}) == "committed"
    assert reserve(old, key).decision == "replay"
    old.commit()
    assert reserve(conn, key).response == {"n": 1}


def test_terminal_rows_are_answered_from_the_snapshot(old, conn, key):
    """A committed row stays committed: an old snapshot may say so, and says nothing of what came later."""
    commit(conn, reserve(conn, key), response={"n": 1})
    look(old)
    assert reserve(old, key).response == {"n": 1}
    assert value(old, "SELECT pg_current_xact_id_if_assigned() IS NULL"), "a replay needs no transaction id"


@pytest.mark.parametrize("function, named", [
    ("idem_commit", {}), ("idem_mark_unknown", {}), ("idem_renew", {}), ("idem_release", {}),
    ("idem_fail", {"proof": "refused"})])
def test_enders_of_a_row_that_moved_meanwhile(old, conn, key, function, named):
    """The owner's old snapshot shows the row as it was; ending it on that ground would overwrite what came since."""
    got = reserve(conn, key)
    look(old)
    end(conn, "idem_renew", got, lease_seconds=120.0)
    assert sqlstate(end, old, function, got, **named) == "40001"
    old.rollback()
    assert sqlstate(end, old, function, got, **named) is None


def test_an_attempt_that_lost_the_action_since_the_snapshot(old, conn, key):
    """A takeover after the snapshot must not be undone by the old owner's commit."""
    conn.execute("SELECT idem_register_action_type('free', 'idempotent_mutation')")
    got = reserve(conn, key, action_type="free", lease_seconds=0.01)
    look(old)
    outlive(conn, got.lease_expires_at)
    taken = reserve(conn, key, action_type="free")
    assert taken.attempt == 2
    assert sqlstate(commit, old, got) == "40001"
    old.rollback()
    assert sqlstate(commit, old, got) == "ID002"
    old.rollback()
    assert commit(conn, taken) == "committed"


def test_reconciling_from_an_old_snapshot(old, conn, key):
    """Two reconcilers on the ground of two snapshots would both hold the lease."""
    got = reserve(conn, key)
    end(conn, "idem_mark_unknown", got)
    look(old)
    finder = reserve(conn, key, can_reconcile=True)
    assert finder.decision == "reconcile"
    assert sqlstate(reserve, old, key, can_reconcile=True) == "40001"
    old.rollback()
    assert resolve(conn, finder, "applied").state == "committed"


def test_a_sweep_from_an_old_snapshot(connect_fresh):
    """It may have to be repeated (40001); it never touches what moved since."""
    conn, old = connect_fresh(), connect_fresh(autocommit=False, isolation="repeatable read")
    got = reserve(conn, "k", lease_seconds=0.01)
    outlive(conn, got.lease_expires_at)
    look(old)
    commit(conn, got)
    assert sqlstate(sweep, old) in (None, "40001")
    old.rollback()
    assert status(conn, "k").state == "committed"


def test_retrying_40001_always_ends(connect, key):
    """Eight sessions in SERIALIZABLE repeat whole transactions as frameworks do: one grant, and all come to an end."""
    sessions = [connect(autocommit=False, isolation="serializable") for _ in range(8)]

    def client(session):
        for _ in range(50):
            try:
                got = reserve(session, key)
                if got.granted:
                    commit(session, got, response={"n": 1})
                session.commit()
                return got.decision
            except Exception as error:
                session.rollback()
                assert error.sqlstate == "40001", error
        return "no end"

    decisions = together(*[lambda s=s: client(s) for s in sessions])
    assert sorted(decisions) == ["execute"] + 7 * ["replay"]


def test_a_policy_registered_after_the_snapshot(old, conn, key):
    """An old snapshot does not show the new policy version; the rows it leaves must be readable to everybody."""
    conn.execute("SELECT idem_register_action_type('changing', 'read_only', lease => '10 s')")
    look(old)
    conn.execute("SELECT idem_register_action_type('changing', 'reversible', lease => '20 s')")
    got = None
    assert sqlstate(lambda: reserve(old, key, action_type="changing")) in (None, "40001")
    old.commit()
    assert reserve(conn, key, action_type="changing").decision in ("pending", "execute")
    got = reserve(old, f"{key}/2", action_type="changing")
    left = value(old, "SELECT extract(epoch FROM %s - clock_timestamp())::float8", (got.lease_expires_at,))
    assert left > 15, "a later transaction sees the new version"
