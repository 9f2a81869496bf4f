"""idem_once between sessions: one effect under any number of callers, and none that is half done."""

import pytest

from sessions import in_background, reserve, row, rows, sqlstate, status, together, value, wait_for


@pytest.fixture
def shop(connect_fresh):
    """An account, a routine that credits it, and a type for it."""
    conn = connect_fresh()
    conn.execute("""CREATE TABLE account (id int PRIMARY KEY, balance int); INSERT INTO account VALUES (1, 0);
        CREATE FUNCTION credit(request jsonb) RETURNS jsonb LANGUAGE sql AS $$
            UPDATE account SET balance = balance + (request->>'amount')::int WHERE id = 1
            RETURNING jsonb_build_object('balance', balance) $$;
        SELECT idem_register_action_type('credit', 'reversible', effect => 'local')""")
    return conn


def once(conn, key, amount=5, routine="credit(jsonb)"):
    return row(conn, "SELECT * FROM idem_once(%s, jsonb_build_object('amount', %s::int), %s::regprocedure, "
                     "action_type => 'credit')", (key, amount, routine))


def test_many_callers_one_effect(shop, connect_fresh):
    """Ten sessions, twenty keys, all at once: each key is credited once, and everybody is told so."""
    sessions = [connect_fresh() for _ in range(10)]
    for key in range(20):
        told = together(*[lambda conn=conn: once(conn, str(key)) for conn in sessions])
        assert [found.decision for found in told].count("execute") == 1
        assert {found.decision for found in told} <= {"execute", "replay"}
        assert len({found.response["balance"] for found in told}) == 1
    assert value(shop, "SELECT balance FROM account") == 100


@pytest.mark.parametrize("last, decision, balance", [("COMMIT", "replay", 5), ("ROLLBACK", "execute", 5)])
def test_a_second_caller_waits_for_the_first(shop, connect_fresh, last, decision, balance):
    """Until its transaction ends, one way or the other."""
    first, second = connect_fresh(), connect_fresh()
    first.execute("BEGIN")
    assert once(first, "k").decision == "execute"
    waiting = in_background(once, second, "k")
    wait_for(shop, second, "Extension")
    first.execute(last)
    assert waiting.result(20).decision == decision
    assert value(shop, "SELECT balance FROM account") == balance


def test_a_killed_session_leaves_nothing(shop, connect_fresh):
    """Between the routine and the COMMIT."""
    first = connect_fresh()
    first.execute("BEGIN")
    once(first, "k")
    shop.execute("SELECT pg_terminate_backend(%s, 5000)", (first.info.backend_pid,))
    assert status(shop, "k").state is None
    assert once(shop, "k").decision == "execute"
    assert value(shop, "SELECT balance FROM account") == 5


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_strict_levels(shop, connect_fresh, level):
    """Both do the work on one row: one of them has to try the whole transaction again."""
    one, other = connect_fresh(autocommit=False, isolation=level), connect_fresh()
    value(one, "SELECT balance FROM account")
    assert once(other, "k").decision == "execute"
    assert sqlstate(once, one, "k") == "40001"
    one.rollback()
    assert once(one, "k").decision == "replay"


def test_a_routine_with_an_exception_block(shop, connect_fresh):
    """What it catches is its own affair; the action ends as it says."""
    shop.execute("""CREATE FUNCTION careful(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
        BEGIN
            UPDATE account SET balance = 1 / 0;
        EXCEPTION WHEN division_by_zero THEN
            UPDATE account SET balance = balance + 1;
            RETURN '{"careful": true}';
        END $$""")
    assert once(shop, "k", routine="careful(jsonb)").response == {"careful": True}
    assert value(shop, "SELECT balance FROM account") == 1


def test_one_that_ends_its_own_action_fails(shop):
    """The routine commits what it is called for under another answer: nothing of it stays."""
    shop.execute("""CREATE FUNCTION meddling(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
        DECLARE found record;
        BEGIN
            SELECT action_id, attempt_id INTO found FROM idem_action WHERE state = 's';
            PERFORM idem_fail(found.action_id, found.attempt_id, 'not_sent');
            RETURN '{}';
        END $$""")
    assert sqlstate(once, shop, "k", routine="meddling(jsonb)") == "ID003"
    assert status(shop, "k").state is None


def test_held_and_foreign(shop, connect_fresh):
    """It is a grant like any other."""
    shop.execute("SELECT idem_hold('action_type', 'credit', 'a test')")
    assert sqlstate(once, connect_fresh(), "k") == "ID008"
    shop.execute("SELECT idem_unhold('action_type', 'credit')")
    assert once(shop, "k").decision == "execute"


def test_a_hostile_session(connect_fresh):
    """Names of the caller's stand before the built-in ones: the routine sees them, idem_once does not."""
    admin = connect_fresh()
    admin.execute("""CREATE SCHEMA hostile; CREATE FUNCTION hostile.format(text, text) RETURNS text LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'captured' USING ERRCODE = 'XXHOS'; END $$;
        CREATE FUNCTION hostile.has_function_privilege(oid, text) RETURNS boolean LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'captured' USING ERRCODE = 'XXHOS'; END $$;
        CREATE FUNCTION hostile.bang(text, text) RETURNS text LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'captured' USING ERRCODE = 'XXHOS'; END $$;
        CREATE OPERATOR hostile.|| (FUNCTION = hostile.bang, LEFTARG = text, RIGHTARG = text);
        CREATE FUNCTION hostile.path(request jsonb) RETURNS jsonb LANGUAGE sql AS
        $$ SELECT to_jsonb(current_setting('search_path')) $$""")
    conn = connect_fresh()
    conn.execute("CREATE TEMP TABLE idem_action_type AS SELECT 1 AS trap")
    conn.execute("CREATE TEMP TABLE pg_proc AS SELECT 1 AS trap")
    conn.execute("SET search_path = pg_temp, hostile, pg_catalog")
    told = row(conn, "SELECT response FROM public.idem_once('k', '{}', 'hostile.path(jsonb)')")
    assert told.response == "pg_temp, hostile, pg_catalog"
    assert reserve(admin, "k", {}).decision == "replay"
    assert rows(admin, "SELECT state FROM idem_actions") == [("committed",)]
