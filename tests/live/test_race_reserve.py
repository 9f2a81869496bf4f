"""One grant for one action, however many sessions ask for it at once and however the winner's transaction ends."""

import random
import threading
from collections import Counter

import psycopg
import pytest

from sessions import (ISOLATION, commit, in_background, new_token, outlive, reserve, row, rows, sqlstate, status,
                      together, value, wait_for, wait_until)

PATIENCE = 20  # seconds a call may take before it counts as hanging


@pytest.mark.parametrize("finish", [False, True], ids=["left open", "committed"])
def test_fifty_clients_over_two_hundred_keys_get_one_grant_each(connect, key, finish):
    """Look-then-insert races would grant twice; a lost race would show as 23505 or another error."""
    clients, keys = 50, [f"{key}/{n}" for n in range(200)]
    decisions, errors, lock = Counter(), Counter(), threading.Lock()
    sessions = [connect() for _ in range(clients)]

    def client(conn):
        for name in random.sample(keys, len(keys)):
            try:
                got = reserve(conn, name)
                if got.granted and finish:
                    commit(conn, got, response={"of": name})
                with lock:
                    decisions[name, got.decision] += 1
            except psycopg.Error as error:
                with lock:
                    errors[error.sqlstate] += 1

    together(*[lambda conn=conn: client(conn) for conn in sessions], timeout=120)
    assert errors == {}
    assert {name: decisions[name, "execute"] for name in keys} == dict.fromkeys(keys, 1)
    allowed = {"execute", "pending", "replay"} if finish else {"execute", "pending"}
    assert {decision for _, decision in decisions} <= allowed
    assert sum(decisions.values()) == clients * len(keys)


@pytest.fixture
def winner(connect):
    return connect(autocommit=False)


@pytest.fixture
def observer(connect):
    return connect()


def losing(observer, loser, key, **named):
    """Starts a reserve that meets an uncommitted twin, and returns once it waits."""
    waiting = in_background(reserve, loser, key, **named)
    wait_for(observer, loser, "Extension")
    return waiting


@pytest.mark.parametrize("isolation", list(ISOLATION))
def test_loser_is_pending_after_the_winner_commits(winner, connect, observer, key, isolation):
    """Never zero rows, never a second grant; 40001 only where the loser's snapshot is older than the winner."""
    loser = connect(autocommit=False, isolation=isolation)
    won = reserve(winner, key)
    waiting = losing(observer, loser, key)
    winner.commit()
    if isolation == "read committed":
        lost = waiting.result(PATIENCE)
        assert (lost.granted, lost.decision, lost.attempt_id) == (False, "pending", None)
    else:
        assert sqlstate(waiting.result, PATIENCE) == "40001"
        loser.rollback()
        assert reserve(loser, key).decision == "pending"
    loser.rollback()
    assert commit(observer, won, response={}) == "committed"


@pytest.mark.parametrize("isolation", list(ISOLATION))
def test_loser_replays_when_the_winner_ends_in_the_same_transaction(winner, connect, observer, key, isolation):
    """The answer of a winner that reserves and commits in one transaction is seen at once, or honestly not (40001)."""
    loser = connect(autocommit=False, isolation=isolation)
    won = reserve(winner, key)
    commit(winner, won, response={"ok": True})
    waiting = losing(observer, loser, key)
    winner.commit()
    if isolation == "read committed":
        replay = waiting.result(PATIENCE)
    else:
        assert sqlstate(waiting.result, PATIENCE) == "40001"
        loser.rollback()
        replay = reserve(loser, key)
    assert (replay.decision, replay.response) == ("replay", {"ok": True})


@pytest.mark.parametrize("isolation", list(ISOLATION))
@pytest.mark.parametrize("how", ["rollback", "savepoint", "terminate"])
def test_loser_wins_when_the_winner_is_undone(winner, connect, observer, key, how, isolation):
    """A reservation that never was must not block the key, nor leave its attempt usable."""
    loser = connect(autocommit=False, isolation=isolation)
    winner.execute("SAVEPOINT before")
    won = reserve(winner, key)
    waiting = losing(observer, loser, key)
    if how == "rollback":
        winner.rollback()
    elif how == "savepoint":
        winner.execute("ROLLBACK TO SAVEPOINT before")
    else:
        observer.execute("SELECT pg_terminate_backend(%s)", (winner.info.backend_pid,))
    got = waiting.result(PATIENCE)
    assert (got.granted, got.decision, got.attempt) == (True, "execute", 1)
    assert got.fence > won.fence and got.attempt_id != won.attempt_id
    loser.commit()
    assert sqlstate(commit, observer, won) == "ID002", "the undone attempt is nobody's"
    assert commit(observer, got) == "committed"


@pytest.mark.parametrize("isolation", list(ISOLATION))
@pytest.mark.parametrize("outcome", ["COMMIT", "ROLLBACK"])
def test_loser_waits_for_a_prepared_transaction(winner, connect, observer, key, outcome, isolation):
    """A prepared winner holds no session, and is waited for all the same."""
    loser = connect(autocommit=False, isolation=isolation)
    won = reserve(winner, key)
    winner.execute(f"PREPARE TRANSACTION '{won.action_id}'")
    winner.rollback()
    waiting = losing(observer, loser, key)
    observer.execute(f"{outcome} PREPARED '{won.action_id}'")
    if outcome == "ROLLBACK":
        assert waiting.result(PATIENCE).granted
    elif isolation == "read committed":
        assert waiting.result(PATIENCE).decision == "pending"
    else:
        assert sqlstate(waiting.result, PATIENCE) == "40001"
    loser.rollback()
    if outcome == "COMMIT":
        assert commit(observer, won) == "committed"


def test_a_prepared_winner_blocks_for_twin_wait_only(winner, connect, key):
    """Nobody hangs on a transaction that may stay prepared for days; a grant is not given either."""
    other = connect()
    won = reserve(winner, key)
    winner.execute(f"PREPARE TRANSACTION '{won.action_id}'")
    winner.rollback()
    other.execute("SET pg_idem.twin_wait = '150ms'")
    got = reserve(other, key)
    other.execute(f"ROLLBACK PREPARED '{won.action_id}'")
    assert (got.granted, got.decision, got.attempt_id) == (False, "pending", None)
    assert got.retry_after_seconds > 0


@pytest.mark.parametrize("budget", [{"wait_seconds": 0.2}, {}], ids=["wait_seconds", "twin_wait"])
def test_the_wait_for_a_twin_is_bounded(winner, connect, key, budget):
    """Ends after the budget, not before half of it and not much later."""
    loser = connect()
    loser.execute("SET pg_idem.twin_wait = %s" % ("'10s'" if budget else "'200ms'"))
    reserve(winner, key)
    began = value(loser, "SELECT clock_timestamp()")
    got = reserve(loser, key, **budget)
    took = value(loser, "SELECT extract(epoch FROM clock_timestamp() - %s)::float8", (began,))
    assert got.decision == "pending"
    assert 0.15 < took < 1.5


@pytest.mark.parametrize("setting, state", [("lock_timeout", None), ("statement_timeout", "57014")])
def test_timeouts_while_waiting_grant_nothing(winner, connect, key, setting, state):
    """statement_timeout ends the wait with 57014; lock_timeout does not apply to it, and pending ends it."""
    loser = connect()
    won = reserve(winner, key)
    loser.execute("SET pg_idem.twin_wait = '600ms'")
    loser.execute(f"SET {setting} = '150ms'")
    got = sqlstate(lambda: reserve(loser, key).granted and pytest.fail("a second grant"))
    assert got in (state, "55P03" if setting == "lock_timeout" else state)
    loser.execute(f"RESET {setting}")
    winner.commit()
    assert reserve(loser, key).decision == "pending", "the session goes on"
    assert commit(loser, won) == "committed"


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_row_committed_after_the_snapshot_is_never_granted_again(connect, key, isolation):
    """Failure 25: the snapshot does not show the winner's row; the index does. 40001, and after it the truth."""
    old, other = connect(autocommit=False, isolation=isolation), connect()
    value(old, "SELECT count(*) FROM pg_class")
    won = reserve(other, key)
    assert sqlstate(reserve, old, key) == "40001"
    old.rollback()
    commit(other, won, response={"n": 1})
    assert reserve(old, key).decision == "replay"


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_row_that_moved_after_the_snapshot_is_not_judged_by_it(connect, key, isolation):
    """A started row ended meanwhile must not be called pending from an old snapshot; terminal ones may be replayed."""
    other = connect()
    won = reserve(other, key)
    old = connect(autocommit=False, isolation=isolation)
    value(old, "SELECT count(*) FROM pg_class")
    commit(other, won, response={"n": 1})
    assert sqlstate(reserve, old, key) == "40001"
    old.rollback()
    assert reserve(old, key).decision == "replay"
    assert reserve(old, key).decision == "replay"


@pytest.mark.parametrize("isolation", list(ISOLATION))
def test_winner_in_every_isolation_level(connect, observer, key, isolation):
    """The level of the winner does not matter to the loser."""
    winner, loser = connect(autocommit=False, isolation=isolation), connect()
    won = reserve(winner, key)
    waiting = losing(observer, loser, key)
    winner.commit()
    assert waiting.result(PATIENCE).decision == "pending"
    assert commit(loser, won) == "committed"


def test_two_keys_in_opposite_order_end_without_a_hang(connect, key):
    """Each session holds what the other asks for: somebody is told pending or gets 40P01; nothing is granted twice."""
    one, two = connect(autocommit=False), connect(autocommit=False)
    for conn in (one, two):
        conn.execute("SET pg_idem.twin_wait = '300ms'")
        conn.commit()
    assert reserve(one, f"{key}/a").granted and reserve(two, f"{key}/b").granted
    answers = together(lambda: reserve(one, f"{key}/b"), lambda: reserve(two, f"{key}/a"))
    for answer in answers:
        assert getattr(answer, "sqlstate", None) == "40P01" or answer.decision == "pending"


@pytest.mark.parametrize("undo", [True, False], ids=["winner undone", "takeover undone"])
def test_time_is_read_after_the_wait(winner, connect, observer, key, undo):
    """Failure 112: a lease counted from before the wait is partly over when it is granted, and its fence too low."""
    loser = connect()
    if undo:
        won = reserve(winner, key)
    else:
        # An action that may be taken over, whose taker is undone.
        observer.execute("SELECT idem_register_action_type('free', 'idempotent_mutation')")
        first = reserve(observer, key, action_type="free", lease_seconds=0.01)
        outlive(observer, first.lease_expires_at)
        won = reserve(winner, key, action_type="free")
    loser.execute("SET pg_idem.twin_wait = '30s'")
    options = {} if undo else {"action_type": "free"}
    waiting = losing(observer, loser, key, lease_seconds=2.0, **options)
    outlive(observer, value(observer, "SELECT clock_timestamp() + interval '1 s'"))
    winner.rollback()
    got = waiting.result(PATIENCE)
    left = value(observer, "SELECT extract(epoch FROM %s - clock_timestamp())::float8", (got.lease_expires_at,))
    assert got.granted and 1.5 < left <= 2.0
    assert got.fence > won.fence
    assert row(observer, "SELECT visit_at >= lease_expires_at AS late FROM idem_action WHERE action_id = %s",
               (got.action_id,)).late or not undo


def test_waiting_for_the_outcome_of_a_visible_attempt(connect, observer, key):
    """wait_seconds is for the answer of somebody else's attempt; it comes as soon as it is there."""
    owner, other = connect(), connect()
    won = reserve(owner, key)
    waiting = losing(observer, other, key, wait_seconds=PATIENCE)
    commit(owner, won, response={"n": 7})
    got = waiting.result(5)
    assert (got.decision, got.response) == ("replay", {"n": 7})


def test_max_wait_bounds_wait_seconds(connect, key):
    """A caller cannot park a session for longer than the administrator allows."""
    owner, other = connect(), connect()
    reserve(owner, key)
    other.execute("SET pg_idem.max_wait = '200ms'")
    waiting = in_background(reserve, other, key, wait_seconds=3600.0)
    assert waiting.result(5).decision == "pending"


def test_same_attempt_id_gets_its_own_grant_back_or_nothing(connect, key):
    """Two redeliveries carry one attempt_id: one grant; the other is told pending (or resumed where that is safe)."""
    conn = connect()
    conn.execute("SELECT idem_register_action_type('free', 'idempotent_mutation')")
    for action_type, second in (("default", "pending"), ("free", "resume")):
        token, name = new_token(), f"{key}/{action_type}"
        answers = together(*[lambda c=connect(): reserve(c, name, attempt_id=token, action_type=action_type)
                             for _ in range(8)])
        assert Counter(answer.decision for answer in answers) == {"execute": 1, second: 7}
        assert {str(answer.attempt_id) for answer in answers if answer.granted} == {token}
        assert len({answer.fence for answer in answers if answer.granted}) == 1


def test_a_reservation_of_an_open_transaction_is_unusable_elsewhere(winner, connect, key):
    """Failure 21: another session neither commits it nor hangs on it."""
    won = reserve(winner, key)
    other = connect()
    assert sqlstate(commit, other, won) == "ID004"
    winner.rollback()
    assert status(other, key).state is None
    assert rows(other, "SELECT FROM idem_actions WHERE action_id = %s", (won.action_id,)) == []


def test_many_losers_of_one_undone_winner(winner, connect, observer, key):
    """When the winner goes, exactly one of all who waited takes over at once."""
    losers = [connect() for _ in range(12)]
    reserve(winner, key)
    waiting = [in_background(reserve, loser, key) for loser in losers]
    for loser in losers:
        wait_for(observer, loser, "Extension")
    winner.rollback()
    decisions = Counter(future.result(PATIENCE).decision for future in waiting)
    assert decisions == {"execute": 1, "pending": 11}
    wait_until(lambda: value(observer, "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'spectoken'"))


def test_a_compensation_is_not_tied_to_what_another_session_reserves(connect, conn, key):
    """Its key is just being reserved for something else: the tie goes back with the whole call."""
    got = reserve(conn, key)
    commit(conn, got)
    ask = "SELECT decision FROM idem_compensate(%s, %s, '{}', 'default')"
    other = connect()
    with other.transaction(force_rollback=True):
        reserve(other, key + "undo", request={"amount": 7})
        with pytest.raises(psycopg.errors.SerializationFailure):
            conn.execute(ask, (got.action_id, key + "undo"))
    assert value(conn, "SELECT count(*) FROM idem_compensation WHERE parent_id = %s", (got.action_id,)) == 0
    assert value(conn, ask, (got.action_id, key + "undo")) == "execute"
