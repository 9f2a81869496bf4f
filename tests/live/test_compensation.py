"""Compensations beside transactions that see an older state of things: nothing is decided on what is not so any more."""

import pytest

from sessions import call, commit, end, reserve, row, sqlstate, status, value

STRICT = ["repeatable read", "serializable"]


@pytest.fixture
def parent(conn, key):
    conn.execute("SELECT idem_register_action_type('book', 'reversible', compensation_type => 'cancel')")
    got = reserve(conn, key, action_type="book")
    assert commit(conn, got) == "committed"
    return got.action_id


def compensate(conn, parent, key):
    return row(conn, "SELECT * FROM idem_compensate(%s, %s, '{}')", (parent, key))


def looked(connect, isolation, parent):
    """A transaction whose snapshot shows things as they are now."""
    session = connect(autocommit=False, isolation=isolation)
    assert value(session, "SELECT state FROM idem_status_by_id(%s)", (parent,)) == "committed"
    return session


@pytest.mark.parametrize("isolation", STRICT)
def test_a_decider_does_not_miss_a_compensation_that_began_after_his_snapshot(conn, connect, parent, key, isolation):
    decider = looked(connect, isolation, parent)
    assert compensate(conn, parent, f"{key}/c").granted
    decided = sqlstate(call, decider, "idem_decide", action_id=parent, finding="not_applied", note="not there")
    assert decided in ("ID003", "40001")
    decider.rollback()
    assert status(conn, key).state == "committed"


@pytest.mark.parametrize("isolation", STRICT)
def test_a_compensation_that_was_replaced_after_the_snapshot_gets_no_other_chance(conn, connect, parent, key, isolation):
    end(conn, "idem_fail", compensate(conn, parent, f"{key}/first"), proof="refused")
    first = value(conn, "SELECT idem_action_id(%s)", (f"{key}/first",))
    decider = looked(connect, isolation, parent)
    assert compensate(conn, parent, f"{key}/second").granted
    assert sqlstate(call, decider, "idem_reopen", action_id=first, note="again") in ("ID003", "40001")
    decider.rollback()
    assert status(conn, f"{key}/first").state == "failed"


@pytest.mark.parametrize("isolation", STRICT)
def test_a_second_compensation_is_refused_whatever_the_snapshot_shows(conn, connect, parent, key, isolation):
    other = looked(connect, isolation, parent)
    assert compensate(conn, parent, f"{key}/first").granted
    assert sqlstate(compensate, other, parent, f"{key}/second") in ("ID003", "40001")
