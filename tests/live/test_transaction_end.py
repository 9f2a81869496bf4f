"""What a session remembers of a transaction ends with it, however it ends. Failure 126: nothing of that may raise, since
an error while a transaction is being rolled back is rolled back again, up to a PANIC.
"""

import uuid

import pytest

from sessions import commit, in_background, reserve, row, rows, sqlstate, value, wait_for, wait_until

MANY = 5000  # more open grants than a session remembers one by one


def several(conn, key):
    """Of everything that is remembered: grants, ended ones among them, and a message that was accepted."""
    assert row(conn, "SELECT * FROM idem_inbox_accept('c', %s)", (key,)).decision == "new"
    commit(conn, reserve(conn, f"{key}/ended", action_type="here"))
    return reserve(conn, f"{key}/k")


def many(conn, key):
    assert value(conn, "SELECT count(*) FROM generate_series(1, %s) AS n, idem_reserve(%s || n) AS r WHERE r.granted",
                 (MANY, key)) == MANY
    return several(conn, key)


def rolled_back(conn, observer):
    conn.rollback()


def failed_statement(conn, observer):
    """The rest of the block is refused, then it is rolled back."""
    assert sqlstate(conn.execute, "SELECT 1 / 0") == "22012"
    assert sqlstate(conn.execute, "SELECT idem_reserve('k')") == "25P02"
    conn.rollback()


def failed_commit(conn, observer):
    """The deferred constraint says no when COMMIT has begun."""
    conn.execute("INSERT INTO late VALUES (1), (1)")
    assert sqlstate(conn.commit) == "23505"


def failed_prepare(conn, observer):
    """After the library was told of the PREPARE, the server finds a reason against it."""
    conn.execute("CREATE TEMP TABLE here (n int)")
    assert sqlstate(conn.execute, f"PREPARE TRANSACTION '{uuid.uuid4()}'") == "0A000"
    conn.rollback()


def cancelled(conn, observer):
    waiting = in_background(sqlstate, conn.execute, "SELECT pg_sleep(60)")
    wait_for(observer, conn, "PgSleep")
    observer.execute("SELECT pg_cancel_backend(%s)", (conn.info.backend_pid,))
    assert waiting.result(20) == "57014"
    conn.rollback()


def rolled_back_prepared(conn, observer):
    name = str(uuid.uuid4())
    conn.execute(f"PREPARE TRANSACTION '{name}'")
    conn.rollback()
    observer.execute(f"ROLLBACK PREPARED '{name}'")


WAYS = (rolled_back, failed_statement, failed_commit, failed_prepare, cancelled, rolled_back_prepared)


@pytest.fixture
def conn(connect):
    """A session with what the ways of ending need."""
    conn = connect()
    conn.execute("""CREATE TABLE IF NOT EXISTS late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
        SELECT idem_register_action_type('here', 'idempotent_mutation', effect => 'local')""")
    return conn


@pytest.fixture
def noise(shared_cluster):
    """What a raise in the wrong place would leave in the log."""
    before = len(shared_cluster.log())
    words = ("PANIC", "WARNING:  AbortTransaction", "leak", "still referenced", "XX000", "was terminated by signal")
    return lambda: [line for line in shared_cluster.log()[before:].splitlines() if any(word in line for word in words)]


@pytest.mark.parametrize("begun", [several, many])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_stays_behind(connect, conn, noise, key, way, begun):
    """The same session is granted the same again, and nothing that was granted before counts as its own."""
    session = connect(autocommit=False)
    begun(session, key)
    way(session, conn)
    assert not rows(conn, "SELECT FROM idem_action WHERE starts_with(key, %s)", (key,))
    free = reserve(session, f"{key}/free")
    got = several(session, key)
    assert got.granted and got.attempt == 1
    # A warning that the effect was committed in the transaction that reserved it would be about the one before.
    told = []
    session.add_notice_handler(lambda diagnostic: told.append(diagnostic.message_primary))
    session.commit()
    assert commit(session, got) == "committed"
    session.commit()
    assert told == [] and noise() == []
    linked = rows(conn, "SELECT FROM idem_lineage WHERE action_id = %s", (free.action_id,))
    assert linked == [], "it does not come from a message that was accepted before"
    assert commit(session, free) == "committed"
    session.commit()


def test_a_serialization_failure_at_commit(connect, conn, noise, key):
    """The library has made the commit synchronous by then, and hears that there is none."""
    conn.execute("CREATE TABLE IF NOT EXISTS counted (n int)")
    one, other = (connect(autocommit=False, isolation="serializable") for _ in range(2))
    got = {}
    for session in (one, other):
        got[session] = reserve(session, f"{key}/{id(session)}")
        value(session, "SELECT count(*) FROM counted")
    for session in (one, other):
        session.execute("INSERT INTO counted VALUES (1)")
    one.commit()
    assert sqlstate(other.commit) == "40001"
    again = reserve(other, f"{key}/{id(other)}")
    assert again.granted and again.attempt == 1
    other.commit()
    assert [commit(session, end) for session, end in ((one, got[one]), (other, again))] == ["committed"] * 2
    one.commit(), other.commit()
    assert noise() == []


def test_subtransactions(connect, conn, noise, key):
    """Rolled back one in the other, by name and by a handler, hundreds of times, with grants and ends in each."""
    conn.execute("""CREATE OR REPLACE FUNCTION pg_temp.nested(key text, depth int) RETURNS void LANGUAGE plpgsql AS $$
        DECLARE got record; BEGIN
            SELECT * INTO got FROM public.idem_reserve(key || depth);
            IF depth > 0 THEN PERFORM pg_temp.nested(key, depth - 1); END IF;
            IF depth % 2 = 0 THEN PERFORM public.idem_commit(got.action_id, got.attempt_id); END IF;
            RAISE division_by_zero;
        EXCEPTION WHEN division_by_zero THEN NULL; END $$""")
    for n in range(20):
        conn.execute("SELECT pg_temp.nested(%s, 15)", (f"{key}/{n}/",))
    assert not rows(conn, "SELECT FROM idem_action WHERE starts_with(key, %s)", (key,))
    session = connect(autocommit=False)
    for n in range(200):
        session.execute("SAVEPOINT s")
        several(session, f"{key}/named")
        session.execute("ROLLBACK TO SAVEPOINT s")
    got = several(session, f"{key}/named")
    session.commit()
    assert got.granted and got.attempt == 1 and noise() == []


@pytest.mark.parametrize("begun", [several, many])
@pytest.mark.parametrize("how", ["closed", "terminated", "terminated in a call"])
def test_the_end_of_a_session(connect, conn, noise, key, how, begun):
    """The transaction is rolled back while the process ends."""
    session = connect(autocommit=False)
    begun(session, key)
    pid = session.info.backend_pid
    if how == "closed":
        session.close()
    elif how == "terminated":
        conn.execute("SELECT pg_terminate_backend(%s)", (pid,))
    else:
        twin = connect(autocommit=False)
        reserve(twin, f"{key}/twin")
        waiting = in_background(sqlstate, reserve, session, f"{key}/twin", wait_seconds=30.0)
        wait_for(conn, session, "Extension")
        conn.execute("SELECT pg_terminate_backend(%s)", (pid,))
        assert waiting.result(20) == "57P01"
        twin.rollback()
    wait_until(lambda: not rows(conn, "SELECT FROM pg_stat_activity WHERE pid = %s", (pid,)))
    assert not rows(conn, "SELECT FROM idem_action WHERE starts_with(key, %s)", (key,))
    assert reserve(conn, f"{key}/k").granted and noise() == []
