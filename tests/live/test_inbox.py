"""A message is new once to each consumer: at the same time, after a rollback, after a crash."""

import pytest

from sessions import in_background, row, rows, sqlstate, sweep, together, value, wait_for, wait_until


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


def test_what_was_seen_before_is_looked_for_once_one_was(connect_fresh, key):
    """A new message is added without a look after another new one; a storm of old ones leaves no dead rows but the first."""
    conn, size = connect_fresh(), "SELECT pg_relation_size('idem_inbox')"
    assert [accept(conn, f"{key}/{n}") for n in (1, 2, 1, 1, 3, 3, 4, 5)] == [
        "new", "new", "duplicate", "duplicate", "new", "duplicate", "new", "new"]
    before = value(conn, size)
    assert accept_many(conn, *[f"{key}/5"] * 1000) == ["duplicate"] * 1000
    assert value(conn, size) == before
    assert value(conn, "SELECT count(*) FROM idem_inbox") == 5


def old(conn, *ids):
    """Messages that this test's inbox has seen for longer than it remembers them, many to a page."""
    conn.execute("""INSERT INTO idem_inbox (message_id, consumer, tenant, first_seen_at)
        SELECT unnest, 'c', '', now() - interval '31 days' FROM unnest(%s::text[])""", (list(ids),))


def pass_over(conn):
    conn.execute("UPDATE idem_cursor SET visited_to = '-infinity' WHERE purpose = 'inbox'")


def left(conn):
    return [found.message_id for found in rows(conn, "SELECT message_id FROM idem_inbox ORDER BY 1")]


def test_forgetting_goes_on_where_it_stopped(connect_fresh):
    """Failure 77: in bounded batches, within pages and from page to page; what is young stays, wherever it stands."""
    conn = connect_fresh()
    for n in range(0, 3000, 100):
        old(conn, *[f"old {m}" for m in range(n, n + 100)])
        accept(conn, f"young {n:04}")
    pages = value(conn, "SELECT pg_relation_size('idem_inbox') / 8192")
    assert pages >= 10
    pass_over(conn)
    swept = []
    while not swept or swept[-1].visited == 70:
        swept.append(sweep(conn, 70))
    assert sum(found.removed for found in swept) == 3000
    assert 3000 // 70 <= len(swept) <= 3000 // 70 + pages
    assert left(conn) == [f"young {n:04}" for n in range(0, 3000, 100)]
    # The next pass is not due, so nothing is read.
    assert sweep(conn, 70).visited == 0
    # With nothing to forget, a batch is as many pages.
    conn.execute("VACUUM (TRUNCATE off) idem_inbox")
    pass_over(conn)
    assert [sweep(conn, 10).visited for _ in range(pages // 10 + 1)] == [10] * (pages // 10) + [pages % 10]


def test_a_pass_over_a_table_that_changes(connect_fresh):
    """Messages that others hold are left to the next pass; a table that was emptied meanwhile ends the pass."""
    conn, holder = connect_fresh(), connect_fresh(autocommit=False)
    old(conn, *[f"{n:04}" for n in range(1000)])
    holder.execute("SELECT FROM idem_inbox WHERE message_id = '0500' FOR UPDATE")
    pass_over(conn)
    assert sweep(conn, 2000).removed == 999
    holder.rollback()
    assert left(conn) == ["0500"]
    pass_over(conn)
    assert sweep(conn, 2000).removed == 1
    old(conn, *[f"{n:04}" for n in range(1000)])
    pass_over(conn)
    assert sweep(conn, 900).removed == 900
    conn.execute("TRUNCATE idem_inbox")
    old(conn, "again")
    assert sweep(conn, 900).visited == 0
    pass_over(conn)
    assert sweep(conn, 900).removed == 1


def test_a_message_of_a_prepared_transaction_is_waited_for(connect_fresh):
    conn, other = connect_fresh(), connect_fresh()
    conn.execute("BEGIN")
    accept(conn, "m")
    conn.execute("PREPARE TRANSACTION 'accepts'")
    waiting = in_background(accept, other, "m")
    wait_for(conn, other, "transactionid")
    conn.execute("COMMIT PREPARED 'accepts'")
    assert waiting.result(10) == "duplicate"
