"""Reserving and ending in one transaction: fails closed where a call would be repeated, speaks up where it is unsafe."""

import pytest

from sessions import commit, end, new_token, outlive, reserve, row, rows, sqlstate, status, value


@pytest.fixture
def conn(connect):
    return connect(autocommit=False)


@pytest.fixture
def notices(conn):
    """SQLSTATE of every warning the session gets."""
    got = []
    conn.add_notice_handler(lambda diagnostics: got.append((diagnostics.severity, diagnostics.sqlstate)))
    return got


@pytest.fixture
def types(connect):
    conn = connect()
    for name, action_class, effect in [("local", "idempotent_mutation", "local"), ("ext", "deduplicated_creation", "external"),
                                       ("rev", "reversible", "external"), ("irrev", "irreversible", "external"),
                                       ("rev_local", "reversible", "local")]:
        conn.execute("SELECT idem_register_action_type(%s, %s, %s, requires_approval => false, marks_dispatch => false)",
                     (name, action_class, effect))


@pytest.mark.parametrize("statement", [
    "SELECT (idem_reserve(%(key)s, '{}')).*",
    "SELECT idem_reserve(%(key)s, '{}'), idem_reserve(%(key)s, '{}')",
    "SELECT * FROM idem_reserve(%(key)s, '{}') AS a, idem_reserve(%(key)s, '{}') AS b",
    "SELECT * FROM generate_series(1, 2) AS n, LATERAL idem_reserve(%(key)s, '{}', worker => n::text)"])
def test_calling_once_a_column_fails_closed(conn, key, statement):
    """The last column would say pending, or the first belong to another attempt than the last."""
    assert sqlstate(conn.execute, statement, {"key": key}) == "55000"
    conn.rollback()
    assert status(conn, key).state is None


def test_the_same_type_may_repeat_or_not(conn, types, key):
    """Also where the second call would be `resume` for its own token."""
    token = new_token()
    assert reserve(conn, key, attempt_id=token, action_type="local").granted
    assert sqlstate(reserve, conn, key, attempt_id=token, action_type="local") == "55000"


def test_after_its_end_the_key_answers_in_the_same_transaction(conn, types, key):
    """Ended attempts are forgotten: replay, not 55000."""
    got = reserve(conn, key, action_type="local")
    commit(conn, got, response={"n": 1})
    assert reserve(conn, key, action_type="local").response == {"n": 1}
    released = reserve(conn, f"{key}/2", action_type="local")
    assert end(conn, "idem_release", released) == "retryable"
    assert reserve(conn, f"{key}/2", action_type="local").attempt == 2


def test_thousands_of_grants_in_one_transaction_are_still_told_apart(conn, key):
    """The session's memory has a limit (4,096 grants); beyond it the guard must still hold."""
    value(conn, "SELECT count(*) FROM generate_series(1, 4300) AS n, LATERAL idem_reserve(%s || n) AS r WHERE r.granted",
          (key,))
    for n in (1, 4000, 4097, 4300):
        conn.execute("SAVEPOINT s")
        assert sqlstate(reserve, conn, f"{key}{n}", []) == "55000" or \
            sqlstate(conn.execute, "ROLLBACK TO SAVEPOINT s") or \
            sqlstate(conn.execute, "SELECT * FROM idem_reserve(%s)", (f"{key}{n}",)) == "55000", n
        conn.execute("ROLLBACK TO SAVEPOINT s")
    conn.rollback()
    assert reserve(conn, f"{key}1").granted, "the next transaction starts anew"


@pytest.mark.parametrize("action_type, setting, warned, error", [
    ("ext", "warn", True, None), ("ext", "allow", False, None), ("ext", "error", False, "55000"),
    ("rev", "warn", False, "55000"), ("rev", "allow", False, "55000"), ("irrev", "allow", False, "55000"),
    ("local", "warn", False, None), ("local", "error", False, None), ("rev_local", "error", False, None),
    ("default", "warn", False, None), ("default", "error", False, None)])
def test_committing_what_the_same_transaction_reserved(conn, types, notices, key, action_type, setting, warned, error):
    """An external effect between reserve and COMMIT is forgotten by a crash; local types and unregistered ones may."""
    conn.execute(f"SET pg_idem.same_transaction = {setting}")
    got = reserve(conn, key, action_type=action_type)
    assert sqlstate(commit, conn, got) == error
    assert notices == ([("WARNING", "01000")] if warned else [])
    conn.rollback()
    # In two transactions nobody says anything.
    notices.clear()
    conn.execute(f"SET pg_idem.same_transaction = {setting}")
    got = reserve(conn, key, action_type=action_type)
    conn.commit()
    assert commit(conn, got) == "committed" and notices == []


def test_only_superusers_may_turn_the_check_off(conn, connect):
    """Settings that change answers are SUSET."""
    conn.execute("DROP ROLE IF EXISTS setter")
    conn.execute("CREATE ROLE setter LOGIN")
    conn.commit()
    settings = ["same_transaction = 'allow'", "twin_wait = 0", "max_wait = 0", "max_response_size = 0",
                "require_action_type = on"]
    # Without preload the server knows the names only once the library is there; what was set before is dropped then.
    before, after = connect(user="setter"), connect(user="setter")
    before.execute("SET pg_idem.same_transaction = 'allow'")
    for session in (before, after):
        assert sqlstate(session.execute, "LOAD 'pg_idem'") in (None, "42501")
        sqlstate(session.execute, "SELECT public.idem_status('k')")
    conn.execute("SELECT idem_grant('setter', 'execute')")
    conn.commit()
    for session in (before, after):
        session.execute("SELECT * FROM idem_status('k')")
        assert value(session, "SHOW pg_idem.same_transaction") == "warn"
        for setting in settings:
            assert sqlstate(session.execute, f"SET pg_idem.{setting}") == "42501", setting


def test_released_savepoints_count_as_the_same_transaction(conn, types, notices, key):
    """xmin is then a subtransaction's id: comparing it with the top one would miss the case."""
    conn.execute("SAVEPOINT s")
    got = reserve(conn, key, action_type="ext")
    conn.execute("RELEASE SAVEPOINT s")
    assert commit(conn, got) == "committed"
    assert notices == [("WARNING", "01000")]


def test_a_rolled_back_grant_leaves_no_trace(conn, types, notices, key):
    """After ROLLBACK TO the key is free again in the same transaction, and its new grant is the one that counts."""
    conn.execute("SAVEPOINT s")
    undone = reserve(conn, key, action_type="ext")
    conn.execute("ROLLBACK TO SAVEPOINT s")
    assert sqlstate(lambda: status(conn, key).state and pytest.fail("there is a row")) is None
    got = reserve(conn, key, action_type="ext")
    assert got.granted and got.attempt_id != undone.attempt_id
    conn.commit()
    assert commit(conn, got) == "committed" and notices == []


@pytest.mark.parametrize("function", ["idem_commit", "idem_mark_unknown", "idem_release"])
def test_an_end_that_was_rolled_back_to_a_savepoint_did_not_happen(conn, types, notices, key, function):
    """The attempt is open again: a second reserve fails closed, and a second commit is warned of as the first was."""
    got = reserve(conn, key, action_type="ext")
    conn.execute("SAVEPOINT s")
    end(conn, function, got)
    conn.execute("ROLLBACK TO SAVEPOINT s")
    notices.clear()
    conn.execute("SAVEPOINT t")
    assert sqlstate(reserve, conn, key, action_type="ext") == "55000"
    conn.execute("ROLLBACK TO SAVEPOINT t")
    assert commit(conn, got) == "committed"
    assert notices == [("WARNING", "01000")]


def test_an_error_caught_in_plpgsql_rolls_the_end_back_too(conn, types, key):
    """The same through an EXCEPTION block, as applications have it."""
    got = reserve(conn, key, action_type="local")
    conn.execute("""CREATE OR REPLACE FUNCTION pg_temp.end_and_fail(uuid, uuid) RETURNS text LANGUAGE plpgsql AS $$
        BEGIN PERFORM idem_commit($1, $2); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN RETURN 'caught'; END $$""")
    assert value(conn, "SELECT pg_temp.end_and_fail(%s, %s)", (got.action_id, got.attempt_id)) == "caught"
    conn.execute("SAVEPOINT s")
    assert sqlstate(reserve, conn, key, action_type="local") == "55000"
    conn.execute("ROLLBACK TO SAVEPOINT s")
    assert commit(conn, got) == "committed"


def test_an_ended_row_and_business_rows_are_one(conn, connect, types, key):
    """Way (a): the effect and its record commit together, or not at all."""
    conn.execute("CREATE TABLE IF NOT EXISTS ledger_entries (key text PRIMARY KEY)")
    conn.commit()
    for finish, expected in ((conn.rollback, 0), (conn.commit, 1)):
        got = reserve(conn, key, action_type="local")
        conn.execute("INSERT INTO ledger_entries VALUES (%s)", (key,))
        commit(conn, got)
        finish()
        other = connect()
        assert len(rows(other, "SELECT FROM ledger_entries WHERE key = %s", (key,))) == expected
        assert (status(other, key).state == "committed") == bool(expected)


def test_a_conflict_in_the_same_transaction_says_conflict(conn, types, key):
    """Contract 5: rows are read top-down, the fingerprint first."""
    reserve(conn, key, {"amount": 1}, action_type="local")
    assert reserve(conn, key, {"amount": 2}, action_type="local").decision == "conflict"


def test_a_lapsed_attempt_of_the_same_transaction_is_not_taken_over_in_it(conn, types, key):
    """A transaction longer than its own lease must not be granted its own action once more."""
    got = reserve(conn, key, action_type="local", lease_seconds=0.01)
    outlive(conn, got.lease_expires_at)
    assert sqlstate(reserve, conn, key, action_type="local") == "55000"
    conn.rollback()
    assert row(conn, "SELECT count(*) AS n FROM idem_actions WHERE key = %s", (key,)).n == 0
