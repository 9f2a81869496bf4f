"""A message is new once to each consumer: at the same time, after a rollback, after a crash."""

import pytest

from sessions import in_background, row, rows, sqlstate, together, value, wait_for, wait_until


def accept(conn, message_id, consumer="c"):
    return row(conn, "SELECT * FROM idem_inbox_accept(%s, %s)", (consumer, message_id)).decision


def accept_many(conn, *ids):
    return [found.decision for found in rows(conn, "SELECT * FROM idem_inbox_accept_many('c', %s)", (list(ids),))]


@pytest.mark.parametrize("end, decision", [("COMMIT", "duplicate"), ("ROLLBACK", "new")])
def test_the_second_waits_for_the_first(connect, conn, key, end, decision):
    """Failure 71."""
    first, second = connect(), connect()
    first.execute("BEGIN")
    assert accept(first, key) == "new"
    waiting = in_background(accept, second, key)
    wait_for(conn, second, "transactionid")
    assert accept(conn, key, "another") == "new"
    first.execute(end)
    assert waiting.result(10) == decision


def test_a_consumer_that_dies_has_seen_nothing(connect, conn, key):
    """Failure 72: accepted and handled in one transaction, a message is new again, and its effect is there once."""
    conn.execute("CREATE TABLE IF NOT EXISTS handled (message text)")
    dying = connect(autocommit=False)
    assert accept(dying, key) == "new"
    dying.execute("INSERT INTO handled VALUES (%s)", (key,))
    conn.execute("SELECT pg_terminate_backend(%s)", (dying.info.backend_pid,))
    with conn.transaction():
        assert accept(conn, key) == "new"
        conn.execute("INSERT INTO handled VALUES (%s)", (key,))
    assert accept(conn, key) == "duplicate"
    assert value(conn, "SELECT count(*) FROM handled WHERE message = %s", (key,)) == 1


def test_opposite_orders_end_in_a_deadlock_error_not_in_a_hang(connect, conn, key):
    first, second = connect(), connect()
    first.execute("BEGIN")
    second.execute("BEGIN")
    accept(first, f"{key}/a")
    accept(second, f"{key}/b")
    waiting = in_background(sqlstate, accept, first, f"{key}/b")
    wait_for(conn, first, "transactionid")
    last = sqlstate(accept, second, f"{key}/a")
    second.execute("ROLLBACK")
    assert sorted([str(waiting.result(10)), str(last)]) == ["40P01", "None"]


def test_batches_in_opposite_order_do_not_deadlock(connect, key):
    sessions = [connect() for _ in range(4)]
    ids = [f"{key}/{n}" for n in range(200)]
    halves = [ids[n:n + 20] for n in range(0, 200, 20)]

    def work(conn, backwards):
        new = 0
        for half in halves:
            new += accept_many(conn, *(half[::-1] if backwards else half)).count("new")
        return new

    counted = together(*[lambda c=c, n=n: work(c, n % 2) for n, c in enumerate(sessions)])
    assert sum(counted) == 200


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_stricter_isolation_gives_the_honest_error(connect, conn, key, isolation):
    session = connect(isolation=isolation, autocommit=False)
    session.execute("SELECT 1")
    assert accept(conn, key) == "new"
    assert sqlstate(accept, session, key) == "40001"
    session.rollback()
    assert accept(session, key) == "duplicate"


def test_many_consumers_of_one_stream_handle_each_message_once(connect, key):
    sessions = [connect() for _ in range(8)]
    ids = [f"{key}/{n}" for n in range(100)]
    seen = together(*[lambda c=c: [accept(c, message) for message in ids] for c in sessions])
    assert sum(found.count("new") for found in seen) == 100


def test_a_wait_can_be_cancelled(connect, conn, key):
    first, second = connect(), connect()
    first.execute("BEGIN")
    accept(first, key)
    waiting = in_background(sqlstate, accept, second, key)
    wait_for(conn, second, "transactionid")
    wait_until(lambda: value(conn, "SELECT pg_cancel_backend(%s)", (second.info.backend_pid,)))
    assert waiting.result(10) == "57014"
    first.execute("ROLLBACK")
    assert accept(second, key) == "new"
