"""The sweep disturbs nobody and misses nothing, whatever runs beside it."""

import psycopg
import pytest

from sessions import commit, end, in_background, outlive, reserve, row, rows, status, sweep, together, value, wait_for

SHORT = 0.01
PATIENCE = 20


def dead(conn, key, **named):
    got = reserve(conn, key, lease_seconds=SHORT, **named)
    outlive(conn, got.lease_expires_at)
    return got


def cursors(conn):
    return dict(rows(conn, "SELECT purpose, visited_to::text FROM idem_cursor"))


@pytest.fixture
def conn(connect_fresh):
    return connect_fresh()


def test_dead_attempts_become_unknown_once(conn):
    """Failure 35 and contract 8: nobody has to ask for the action; and the next sweep finds nothing to do."""
    for n in range(25):
        dead(conn, f"k{n}")
    alive, done = reserve(conn, "alive"), dead(conn, "done")
    commit(conn, done)
    assert sweep(conn).unknown == 25
    assert {status(conn, f"k{n}").state for n in range(25)} == {"unknown"}
    assert status(conn, "alive").state == "started" and status(conn, "done").state == "committed"
    again = sweep(conn)
    assert (again.unknown, again.visited) == (0, 0), "the cursor must have moved"
    assert commit(conn, alive) == "committed"


def test_batches_make_progress(conn):
    """Failure 42: a bounded batch visits no more than it was told, and the next goes on where it ended."""
    for n in range(30):
        dead(conn, f"k{n}")
    seen = [sweep(conn, 7).unknown for _ in range(6)]
    assert sum(seen) == 30 and max(seen) <= 7, seen


def test_sweep_all_ends(conn):
    """CALL idem_sweep_all() loops until nothing is left: with more than one batch it must end all the same."""
    conn.execute("SET statement_timeout = '20s'")
    conn.execute("SELECT FROM generate_series(1, 2500) AS n, LATERAL idem_reserve('k' || n, lease_seconds => 0.001)")
    outlive(conn, value(conn, "SELECT clock_timestamp() + interval '10 ms'"))
    conn.execute("CALL idem_sweep_all()")
    assert value(conn, "SELECT count(*) FROM idem_actions WHERE state = 'unknown'") == 2500


def test_sweep_does_not_wait_for_a_held_row(conn, connect_fresh):
    """Failure 29: a row in somebody's hands is left alone, the others are done, and it is not forgotten."""
    held, other = dead(conn, "held"), dead(conn, "other")
    worker = connect_fresh(autocommit=False)
    assert commit(worker, held, response={}) == "committed"
    assert in_background(sweep, conn).result(5).unknown == 1
    assert status(conn, "other").state == "unknown"
    worker.rollback()
    for _ in range(3):
        sweep(conn)
    assert status(conn, "held").state in ("unknown", "started")
    outlive(conn, value(conn, "SELECT clock_timestamp() + interval '6 s'"))
    sweep(conn)
    assert status(conn, "held").state == "unknown", "a row that was busy once must be visited again"
    assert commit(conn, other) == "committed"


def test_sweep_leaves_a_commit_that_came_first(conn, connect_fresh):
    """The same, with the worker's commit going through: the row stays committed."""
    held = dead(conn, "held")
    worker = connect_fresh(autocommit=False)
    commit(worker, held, response={"n": 1})
    assert sweep(conn).unknown == 0
    worker.commit()
    for _ in range(3):
        sweep(conn)
    assert status(conn, "held").state == "committed"


@pytest.mark.parametrize("quiet", [True, False], ids=["nothing else runs", "others come and go"])
def test_a_long_transaction_is_not_skipped(conn, connect_fresh, quiet):
    """A row whose transaction commits after its lease ended: the cursors passed its time while nobody could see it."""
    slow, other = connect_fresh(autocommit=False), connect_fresh()
    sweep(conn)
    got = reserve(slow, "slow", lease_seconds=SHORT)
    outlive(conn, got.lease_expires_at)
    for n in range(4):
        assert sweep(conn).unknown == 0
        if not quiet:
            reserve(other, f"other{n}")
    slow.commit()
    for _ in range(4):
        sweep(conn)
    assert status(conn, "slow").state == "unknown", cursors(conn)


def test_a_prepared_transaction_is_not_skipped(conn, connect_fresh):
    """The same for one that no session holds; several sweeps pass while it is prepared."""
    slow = connect_fresh(autocommit=False)
    got = reserve(slow, "slow", lease_seconds=SHORT)
    slow.execute(f"PREPARE TRANSACTION '{got.action_id}'")
    slow.rollback()
    outlive(conn, got.lease_expires_at)
    for n in range(4):
        sweep(conn)
        reserve(conn, f"other{n}")
    conn.execute(f"COMMIT PREPARED '{got.action_id}'")
    for _ in range(4):
        sweep(conn)
    assert status(conn, "slow").state == "unknown", cursors(conn)


def test_sweep_against_reserve(conn, connect_fresh):
    """Both find the lease over at once: one of them ends it, once, and reserve's answer fits."""
    a, b = connect_fresh(), connect_fresh()
    for n in range(200):
        got = dead(conn, f"k{n}")
        swept, answer = together(lambda: sweep(a), lambda: reserve(b, f"k{n}"))
        assert answer.decision in ("unknown", "pending") and not answer.granted, (n, answer)
        assert swept.unknown <= 1
        sweep(a)
        assert status(conn, f"k{n}").state == "unknown"
        lapsed = rows(conn, "SELECT outcome FROM idem_attempt WHERE action_id = %s", (got.action_id,))
        assert [end.outcome for end in lapsed] == ["lapsed"], n


def test_sweep_against_takeover(conn, connect_fresh):
    """The same where the type may repeat: the new attempt's lease is not touched by the sweep."""
    conn.execute("SELECT idem_register_action_type('free', 'idempotent_mutation')")
    a, b = connect_fresh(), connect_fresh()
    for n in range(200):
        dead(conn, f"k{n}", action_type="free")
        _, answer = together(lambda: sweep(a), lambda: reserve(b, f"k{n}", action_type="free"))
        assert answer.decision in ("execute", "pending", "unknown"), (n, answer)
        if answer.granted:
            sweep(a)
            assert (status(conn, f"k{n}").state, status(conn, f"k{n}").attempt) == ("started", 2), n
            assert commit(b, answer) == "committed"


def test_two_sweeps(conn, connect_fresh):
    """Started together they neither hang nor do anything twice."""
    sessions = [connect_fresh() for _ in range(4)]
    for n in range(10):
        for k in range(20):
            dead(conn, f"k{n}/{k}")
        done = together(*[lambda c=c: sweep(c) for c in sessions], timeout=30)
        assert sum(swept.unknown for swept in done) == 20, done
    ends = row(conn, "SELECT count(*) AS all, count(DISTINCT action_id) AS actions FROM idem_attempt")
    assert ends.all == ends.actions == 200


def test_a_sweep_in_an_open_transaction_blocks_only_what_it_moved(conn, connect_fresh):
    """An ender waits in a row lock for it; an ender of another row does not wait at all."""
    moved, other = dead(conn, "moved"), reserve(conn, "other")
    open_sweep, worker, observer = connect_fresh(autocommit=False), connect_fresh(), connect_fresh()
    assert sweep(open_sweep).unknown == 1
    assert in_background(commit, conn, other).result(5) == "committed"
    waiting = in_background(commit, worker, moved)
    wait_for(observer, worker, "transactionid", "tuple")
    open_sweep.rollback()
    assert waiting.result(PATIENCE) == "committed"


def test_a_circle_with_a_sweep_is_found(conn, connect_fresh):
    """A sweep inside a larger transaction that then waits for a row whose holder waits for the sweep: 40P01, no hang."""
    got = dead(conn, "k")
    holder, sweeper, observer = connect_fresh(autocommit=False), connect_fresh(autocommit=False), connect_fresh()
    end(holder, "idem_renew", got, lease_seconds=SHORT)
    sweep(sweeper)
    waiting = in_background(commit, sweeper, got)
    wait_for(observer, sweeper, "transactionid", "tuple")
    [answer] = together(lambda: end(holder, "idem_mark_unknown", got), timeout=60)
    if not isinstance(answer, Exception):
        holder.rollback()
        waiting.result(PATIENCE)
    else:
        assert answer.sqlstate == "40P01"


def test_non_terminal_rows_are_listed_as_overdue(conn):
    """Contract 9: what does not expire by itself is visible, before and after the sweep came by."""
    dead(conn, "dead")
    assert [late.key for late in rows(conn, "SELECT key FROM idem_overdue")] == ["dead"]
    sweep(conn)
    assert status(conn, "dead").state == "unknown"
    assert [open.key for open in rows(conn, "SELECT key FROM idem_unresolved")] == ["dead"]


# A sweep whose transaction goes on


@pytest.fixture
def lingering(conn, connect_fresh):
    """Has a sweep note an action that somebody held when it came by, and gives the sweep's open transaction."""
    def note(action_id):
        holder, sweeper = connect_fresh(autocommit=False), connect_fresh(autocommit=False)
        conn.execute("UPDATE idem_open SET visit_at = now() WHERE action_id = %s", (action_id,))
        holder.execute("SELECT FROM idem_action WHERE action_id = %s FOR UPDATE", (action_id,))
        assert sweep(sweeper).visited >= 1
        holder.rollback()
        return sweeper
    conn.execute("SELECT idem_register_action_type('status', 'idempotent_mutation')")
    return note


def test_a_grant_waits_no_longer_for_a_sweep_than_for_a_twin(conn, lingering):
    got = dead(conn, "k", action_type="status")
    sweeper = lingering(got.action_id)
    conn.execute("SET pg_idem.twin_wait = '50 ms'")
    assert reserve(conn, "k", action_type="status").decision == "pending"
    assert rows(conn, "SELECT decision FROM idem_due(1)") == []
    sweeper.rollback()
    assert reserve(conn, "k", action_type="status").decision == "execute"


def test_a_lease_begins_after_the_wait_for_a_sweep(conn, connect_fresh, lingering):
    got, other = dead(conn, "k", action_type="status"), connect_fresh()
    sweeper = lingering(got.action_id)
    asked = in_background(reserve, other, "k", action_type="status", lease_seconds=1.0, wait_seconds=20.0)
    wait_for(conn, other, "Extension")
    outlive(conn, value(conn, "SELECT clock_timestamp() + interval '1.1 s'"))
    sweeper.commit()
    granted = asked.result(PATIENCE)
    assert granted.granted and value(conn, "SELECT %s > clock_timestamp()", (granted.lease_expires_at,))


@pytest.mark.parametrize("function", ["idem_renew", "idem_dispatch"])
def test_what_ended_while_a_sweep_was_waited_for_is_not_permitted(conn, connect_fresh, lingering, function):
    conn.execute("SELECT idem_register_action_type('marked', 'idempotent_mutation', marks_dispatch => true)")
    got, other = reserve(conn, "k", action_type="marked", lease_seconds=SHORT), connect_fresh()
    lease = end(conn, "idem_renew", got, lease_seconds=1.0)
    sweeper = lingering(got.action_id)
    asked = in_background(end, other, function, got)
    wait_for(conn, other, "transactionid")
    outlive(conn, lease)
    sweeper.rollback()
    if function == "idem_dispatch":
        with pytest.raises(psycopg.Error) as refused:
            asked.result(PATIENCE)
        assert refused.value.sqlstate == "ID006"
    else:
        assert value(conn, "SELECT %s > clock_timestamp()", (asked.result(PATIENCE),))
