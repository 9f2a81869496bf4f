"""idem_dispatch with real sessions: one gate for each attempt, committed by itself before anybody can send."""

import psycopg
import pytest

from sessions import call, end, new_token, reserve, row, rows, sqlstate, together, value, wait_for, in_background

PATIENCE = 20


@pytest.fixture(autouse=True, scope="module")
def types(shared_cluster, dbname):
    with shared_cluster.connect(dbname) as conn:
        conn.execute("SELECT idem_register_action_type('marking', 'reversible', marks_dispatch => true)")


def granted(conn, key, **named):
    got = reserve(conn, key, action_type="marking", **named)
    assert got.granted and got.provider_key is None
    return got


def marked(conn, got):
    return value(conn, "SELECT dispatched_at IS NOT NULL FROM idem_action WHERE action_id = %s", (got.action_id,))


DISPATCH = "SELECT idem_dispatch(%s, %s)"


def test_two_holders_of_one_token_send_once(connect, key):
    """A client whose answer got lost resumes, and both of it reach the gate."""
    a, b = connect(), connect()
    for n in range(50):
        got = granted(a, f"{key}/{n}", attempt_id=new_token())
        answers = together(lambda: end(a, "idem_dispatch", got), lambda: end(b, "idem_dispatch", got))
        keys = [answer for answer in answers if not isinstance(answer, psycopg.Error)]
        errors = [answer.sqlstate for answer in answers if isinstance(answer, psycopg.Error)]
        assert (len(keys), errors) == (1, ["ID006"]), answers


def test_driver_that_opens_a_transaction_by_itself(connect, key):
    session = connect(autocommit=False)
    got = granted(session, key)
    session.commit()
    assert sqlstate(end, session, "idem_dispatch", got) == "25001"
    session.rollback()
    assert not marked(session, got)


def test_first_in_a_pipeline_is_committed_before_the_next_statement(connect, key):
    """The server cannot see that more is coming, so it commits at once; what fails later takes nothing back."""
    session, observer = connect(), connect()
    got = granted(session, key)
    with pytest.raises(psycopg.errors.DivisionByZero), session.pipeline():
        session.execute(DISPATCH, (got.action_id, got.attempt_id))
        session.execute("SELECT 1 / 0")
    assert marked(observer, got)


def test_later_in_a_pipeline_is_refused(connect, key):
    session, observer = connect(), connect()
    got = granted(session, key)
    with pytest.raises(psycopg.errors.ActiveSqlTransaction), session.pipeline():
        session.execute("CREATE TEMPORARY TABLE before_dispatch (n int)")
        session.execute(DISPATCH, (got.action_id, got.attempt_id))
    assert not marked(observer, got)


@pytest.mark.parametrize("end_of_other", ["commit", "rollback"])
def test_dispatch_waits_for_whoever_holds_the_row(connect, key, end_of_other):
    """A commit under way decides first; if it comes to nothing the gate opens."""
    owner, other = connect(), connect(autocommit=False)
    got = granted(owner, key)
    end(other, "idem_mark_unknown", got)
    waiting = in_background(sqlstate, end, owner, "idem_dispatch", got)
    wait_for(connect(), owner, "transactionid", "tuple")
    getattr(other, end_of_other)()
    assert waiting.result(PATIENCE) == ("ID003" if end_of_other == "commit" else None)


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_dispatch_under_a_default_of_higher_isolation(connect, key, isolation):
    session = connect(options=f"-c default_transaction_isolation={isolation.replace(' ', chr(92) + ' ')}")
    got = granted(session, key)
    assert call(session, "idem_dispatch", action_id=got.action_id, attempt_id=got.attempt_id)
    assert marked(session, got)


def test_type_that_stops_marking_under_way(conn, key):
    """An attempt keeps the policy it was granted under: its key stays behind the gate."""
    conn.execute("SELECT idem_register_action_type('was marking', 'reversible', marks_dispatch => true)")
    token = new_token()
    reserve(conn, key, action_type="was marking", attempt_id=token)
    conn.execute("SELECT idem_register_action_type('was marking', 'reversible')")
    again = reserve(conn, key, action_type="was marking", attempt_id=token)
    assert (again.decision, again.provider_key) == ("resume", None)
    assert end(conn, "idem_dispatch", again)


def test_type_that_starts_marking_under_way(conn, key):
    """The attempt may have been sent long ago: it cannot become one that was not."""
    conn.execute("SELECT idem_register_action_type('will mark', 'reversible')")
    reserve(conn, key, action_type="will mark", lease_seconds=0.01)
    conn.execute("SELECT idem_register_action_type('will mark', 'reversible', marks_dispatch => true)")
    conn.execute("SELECT pg_sleep(0.02)")
    assert reserve(conn, key, action_type="will mark").decision == "unknown"


def test_an_unmarked_commit_is_said(connect, key):
    session = connect()
    said = []
    session.add_notice_handler(lambda notice: said.append((notice.sqlstate, notice.message_primary)))
    end(session, "idem_commit", granted(session, key))
    assert said == [("01000", "the attempt was committed without having marked its dispatch")]
    [event] = rows(session, "SELECT event FROM idem_event WHERE action_id = idem_action_id(%s)", (key,))
    assert event.event == "unmarked"
    said.clear()
    got = granted(session, f"{key}/marked")
    end(session, "idem_dispatch", got)
    end(session, "idem_commit", got)
    assert not said
    assert not row(session, "SELECT count(*) FROM idem_event WHERE action_id = %s", (got.action_id,)).count
