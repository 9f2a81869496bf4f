"""A policy between sessions: whoever is granted after its COMMIT is granted under it, whatever he waited for or has seen."""

import pytest

from sessions import in_background, reserve, rows, sqlstate, value, wait_for


def register(conn, name, **named):
    """idem_register_action_type(name, 'deduplicated_creation', ...)"""
    given = "".join(f", {word} => %({word})s" for word in named)
    conn.execute(f"SELECT idem_register_action_type(%(name)s, 'deduplicated_creation'{given})", {"name": name, **named})


def policy_of(conn, got):
    return value(conn, "SELECT policy_version FROM idem_action WHERE action_id = %s", (got.action_id,))


@pytest.fixture
def name(key):
    """A type that no other test uses."""
    return key[-60:]


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_one_that_waits_is_granted_under_the_new_policy(connect, key, name, level):
    """It began before the change, and gets the action after it."""
    first, second, operator = connect(autocommit=False), connect(autocommit=False, isolation=level), connect()
    reserve(first, key, action_type=name)
    waiting = in_background(reserve, second, key, action_type=name, wait_seconds=30.0)
    wait_for(operator, second, "Extension")
    register(operator, name, marks_dispatch=True)
    first.rollback()
    got = waiting.result(20)
    second.commit()
    assert (got.decision, got.provider_key, policy_of(operator, got)) == ("execute", None, 1)


def test_one_that_waits_meets_the_need_for_approval(connect, key, name):
    """Nobody approved: what the type asks for now is not passed by for having come early."""
    first, second, operator = connect(autocommit=False), connect(), connect()
    reserve(first, key, action_type=name, request={"n": 1})
    waiting = in_background(reserve, second, key, action_type=name, request={"n": 1}, wait_seconds=30.0)
    wait_for(operator, second, "Extension")
    register(operator, name, requires_approval=True)
    first.rollback()
    got = waiting.result(20)
    assert got.decision == "awaiting_approval"
    kept = value(operator, "SELECT request FROM idem_action WHERE action_id = %s", (got.action_id,))
    assert kept == {"n": 1}, "an approver has to see it"


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("warm", [True, False])
def test_an_old_snapshot_is_no_excuse(connect, key, name, level, warm):
    """The transaction cannot see the policy's row; it is granted under it."""
    worker, operator = connect(autocommit=False, isolation=level), connect()
    value(worker, "SELECT count(*) FROM pg_class")
    if warm:
        assert reserve(worker, f"{key}/1", action_type=name).provider_key
    register(operator, name, marks_dispatch=True)
    assert rows(worker, "SELECT FROM idem_action_type WHERE name = %s", (name,)) == []
    got = reserve(worker, f"{key}/2", action_type=name)
    worker.commit()
    assert (got.decision, got.provider_key, policy_of(operator, got)) == ("execute", None, 1)


def test_inside_a_transaction_that_holds_its_locks_already(connect, key, name):
    """No new lock tells it of the change."""
    worker, operator = connect(autocommit=False), connect()
    assert reserve(worker, f"{key}/1", action_type=name).provider_key
    register(operator, name, marks_dispatch=True)
    assert reserve(worker, f"{key}/2", action_type=name).provider_key is None


def test_a_second_attempt_from_an_old_snapshot(connect, key, name):
    """An action of a version that the snapshot does not show is judged by that version."""
    old, operator = connect(autocommit=False, isolation="repeatable read"), connect()
    value(old, "SELECT count(*) FROM pg_class")
    register(operator, name, marks_dispatch=True)
    register(operator, name, marks_dispatch=True, lease="20 s")
    reserve(operator, key, action_type=name)
    assert sqlstate(reserve, old, key, action_type=name) in (None, "40001")
