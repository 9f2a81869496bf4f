"""The background worker among hostile settings, hostile names, broken rows and locks."""

import pytest

from sessions import end, reserve, row, rows, value, wait_until
from working import complaints, conn, connect, workers  # noqa: F401  (fixtures)
from working import becomes, dead, seen, state

SETTINGS = {"statement_timeout": "1ms", "lock_timeout": "1ms", "default_transaction_isolation": "serializable",
            "default_transaction_read_only": "on", "default_transaction_deferrable": "on", "search_path": "evil",
            "idle_in_transaction_session_timeout": "1ms", "row_security": "off", "synchronous_commit": "remote_apply",
            "plpgsql.extra_errors": "all", "plpgsql.variable_conflict": "use_variable", "DateStyle": "german",
            "standard_conforming_strings": "off", "quote_all_identifiers": "on", "transform_null_equals": "on",
            "bytea_output": "escape", "extra_float_digits": "-15", "session_replication_role": "replica",
            "client_encoding": "LATIN1", "role": "weak", "jit_above_cost": "0", "array_nulls": "off"}


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_of_the_database_are_for_its_own_sessions(connect, conn, complaints, setting):
    """ALTER DATABASE … SET must not stop the worker."""
    if setting == "role":
        conn.execute("CREATE ROLE weak")
    try:
        conn.execute(f"ALTER DATABASE \"{connect.dbname}\" SET {setting} = '{SETTINGS[setting]}'")
        seen(conn)
        dead(conn, "k")
        becomes(conn, "k", "unknown")
        assert complaints() == []
    finally:
        conn.execute(f"ALTER DATABASE \"{connect.dbname}\" RESET ALL")
        if setting == "role":
            conn.execute("DROP ROLE weak")


def test_hostile_names_before_the_catalog(connect, conn, complaints):
    """Functions and operators that look like the catalog's, in a schema that comes first for everybody."""
    conn.execute("CREATE TABLE trap (what text); GRANT INSERT ON trap TO PUBLIC")
    for name, arguments, result in [("clock_timestamp", "", "timestamptz"), ("quote_ident", "text", "text"),
                                    ("make_interval", "secs float8", "interval"), ("current_setting", "text", "text")]:
        conn.execute(f"CREATE FUNCTION public.{name}({arguments}) RETURNS {result} LANGUAGE plpgsql AS $$ BEGIN "
                     f"INSERT INTO public.trap VALUES ('{name}'); RETURN NULL; END $$")
    for operator, left, right in [("+", "bigint", "bigint"), ("=", "oid", "oid"), ("=", "name", "unknown"),
                                  ("=", "name", "name"), ("~", "text", "text"), ("||", "text", "text")]:
        right = "text" if right == "unknown" else right
        conn.execute(f"""CREATE FUNCTION public.f(a {left}, b {right}) RETURNS {'boolean' if operator in '=~' else left}
            LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.trap VALUES ('{operator}'); RETURN NULL; END $$""")
        conn.execute(f"CREATE OPERATOR public.{operator} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = public.f)")
        conn.execute(f"ALTER FUNCTION public.f({left}, {right}) RENAME TO f_{abs(hash(operator + right))}")
    conn.execute(f'ALTER DATABASE "{connect.dbname}" SET search_path = public, pg_catalog')
    seen(conn)
    dead(conn, "k")
    becomes(conn, "k", "unknown")
    assert rows(conn, "SELECT * FROM trap") == [] and complaints() == []


def test_an_overload_in_the_schema_is_not_called(conn):
    """Who may create functions in the extension's schema must not get the worker, a superuser, to run them."""
    conn.execute("CREATE TABLE trap (who text); CREATE ROLE mallory; GRANT CREATE ON SCHEMA public TO mallory; "
                 "GRANT INSERT ON trap TO mallory")
    try:
        for number in ("numeric", "integer", "bigint", "real"):
            conn.execute(f"""SET ROLE mallory; CREATE FUNCTION public.idem_visit(integer, {number}) RETURNS bigint
                LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.trap VALUES (current_user); RETURN 0; END $$;
                RESET ROLE""")
        dead(conn, "k")
        becomes(conn, "k", "unknown")
        assert rows(conn, "SELECT DISTINCT who FROM trap") == []
    finally:
        conn.execute("DROP OWNED BY mallory; DROP ROLE mallory")


@pytest.mark.parametrize("where", ["passing", "open"])
def test_a_corrupted_row_does_not_keep_the_others_waiting(conn, complaints, where):
    """It is left as it is and said so, not with every visit."""
    bad = reserve(conn, "bad", lease_seconds=0.3)
    if where == "open":
        conn.execute("SELECT idem_register_action_type('t', 'deduplicated_creation', resolve_deadline => '0.5 s')")
        bad = reserve(conn, "worse", action_type="t", lease_seconds=0.01)
        becomes(conn, "worse", "unknown")
    conn.execute("UPDATE idem_action SET state = '?' WHERE action_id = %s", (bad.action_id,))
    conn.execute("SELECT pg_sleep(0.6)")
    dead(conn, "good")
    becomes(conn, "good", "unknown")
    end(conn, "idem_release", reserve(conn, "fine"))
    for _ in range(30):
        seen(conn)
    assert value(conn, "SELECT state::text FROM idem_action WHERE action_id = %s", (bad.action_id,)) == "?"
    said = [line for line in complaints() if "left out" in line]
    assert 1 <= len(said) <= 3, said[:3]
    assert not [line for line in complaints() if "exited" in line]


def test_one_broken_row_and_batches_of_one(workers, connect, conn):
    """A row that is always due and never moves must not use up every batch."""
    conn.execute("SELECT idem_register_action_type('t', 'deduplicated_creation', resolve_deadline => '0.3 s')")
    try:
        conn.execute("ALTER SYSTEM SET pg_idem.batch_size = 1")
        conn.execute("SELECT pg_reload_conf()")
        bad = dead(conn, "bad", action_type="t")
        becomes(conn, "bad", "unknown")
        conn.execute("UPDATE idem_action SET state = '?' WHERE action_id = %s", (bad.action_id,))
        renewed = dead(conn, "renewed", lease_seconds=2.0)
        end(conn, "idem_renew", renewed, lease_seconds=2.5)
        becomes(conn, "renewed", "unknown")
    finally:
        conn.execute("ALTER SYSTEM RESET pg_idem.batch_size")
        conn.execute("SELECT pg_reload_conf()")


def test_a_batch_that_fails_is_written_down_and_tried_again(connect, conn, complaints):
    """The ledger is locked for longer than the worker waits; afterwards it goes on, and the error stays readable."""
    dead(conn, "k", lease_seconds=0.5)
    locker = connect(autocommit=False)
    locker.execute("LOCK TABLE idem_action IN ACCESS EXCLUSIVE MODE")
    wait_until(lambda: value(conn, "SELECT last_error FROM idem_worker_status"), timeout=60)
    failed = row(conn, "SELECT * FROM idem_worker_status")
    assert failed.last_error.startswith("55P03") and failed.last_error_at is not None
    locker.rollback()
    becomes(conn, "k", "unknown")
    assert row(conn, "SELECT * FROM idem_worker_status").last_error == failed.last_error
    assert not [line for line in complaints() if "exited" in line], "a failed batch does not end the process"


def test_a_worker_that_waits_for_a_lock_can_be_sent_away(connect, conn, complaints):
    """Failure 85: SIGTERM reaches it there as well, and the next one does its work."""
    locker = connect(autocommit=False)
    locker.execute("LOCK TABLE idem_action IN ACCESS EXCLUSIVE MODE")
    waits = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_idem worker' AND datname = %s AND wait_event_type = 'Lock'"

    def sent_away():
        """One is caught before its lock_timeout ends the wait."""
        for found in rows(conn, waits, (connect.dbname,)):
            conn.execute("SELECT pg_terminate_backend(%s)", (found.pid,))
        return [line for line in complaints() if "due to administrator command" in line]
    wait_until(sent_away, timeout=60)
    assert not [line for line in complaints() if "signal" in line]
    locker.rollback()
    dead(conn, "k")
    becomes(conn, "k", "unknown")


def test_roles_that_are_dropped_or_renamed(connect, conn, complaints):
    """Failure 89: who made the extension, whom the database's settings name, who was bound, and the first superuser."""
    conn.execute("CREATE ROLE maker SUPERUSER LOGIN; CREATE ROLE keeper SUPERUSER LOGIN; CREATE ROLE guest LOGIN")
    keeper = connect(user="keeper")

    def works(key):
        dead(keeper, key)
        becomes(keeper, key, "unknown")
        # A statement on all that a role owns locks what the worker wants, too.
        assert [line for line in complaints() if "lock timeout" not in line] == []
        wait_until(lambda: value(keeper, "SELECT last_error FROM idem_worker_status") is None)

    try:
        maker = connect(user="maker")
        maker.execute("DROP EXTENSION pg_idem; CREATE EXTENSION pg_idem; SELECT idem_grant('guest', 'execute', 'operate')")
        maker.execute("SELECT idem_bind_tenant('guest', 'acme'), idem_hold('tenant', 'acme', 'a test')")
        works("maker's")
        maker.close()
        keeper.execute("REASSIGN OWNED BY maker TO keeper; DROP OWNED BY maker; DROP ROLE maker")
        works("nobody's")
        keeper.execute("DROP OWNED BY guest; DROP ROLE guest")
        works("without its guest")
        assert len(rows(keeper, "SELECT FROM idem_bindings")) == len(rows(keeper, "SELECT FROM idem_holds")) == 1
        keeper.execute(f"CREATE ROLE passing; ALTER DATABASE \"{connect.dbname}\" SET role = 'passing'; DROP ROLE passing")
        works("of a database that names nobody")
        keeper.execute("ALTER ROLE postgres RENAME TO \"Chef\"")
        works("after the renaming")
        seen(keeper)
    finally:
        # As it was, so that the other tests can log in.
        keeper.execute("UPDATE pg_authid SET rolname = 'postgres' WHERE rolname = 'Chef'")
        keeper.execute(f'SET pg_idem.allow_drop = on; DROP EXTENSION pg_idem; ALTER DATABASE "{connect.dbname}" RESET ALL')
        conn.execute("DROP OWNED BY keeper")
        keeper.close()
        conn.execute("DROP ROLE keeper; DROP ROLE IF EXISTS maker; DROP ROLE IF EXISTS guest")


def test_a_sweep_that_cannot_run_says_why(conn, complaints):
    """An object is away: every batch fails, in the log a line now and then, and it recovers."""
    conn.execute("ALTER TABLE idem_open RENAME TO elsewhere")
    dead(conn, "k")
    wait_until(lambda: value(conn, "SELECT last_error FROM idem_worker_status"), timeout=60)
    for _ in range(20):
        seen(conn)
    said = [line for line in complaints() if "failed" in line]
    conn.execute("ALTER TABLE elsewhere RENAME TO idem_open")
    becomes(conn, "k", "unknown")
    assert len(said) <= 60, f"{len(said)} lines for some twenty visits"


def test_a_status_row_that_somebody_holds(connect, conn, complaints):
    """An administrator looks at the table in an open transaction: the worker leaves, and comes again."""
    holder = connect(autocommit=False)
    holder.execute("SELECT * FROM idem_worker_visit FOR UPDATE")
    conn.execute("SELECT pg_sleep(2.5)")
    holder.rollback()
    dead(conn, "k")
    becomes(conn, "k", "unknown")
    assert len(complaints()) <= 8


def test_a_sweep_of_somebody_else_is_waited_for_by_nobody(connect, conn):
    """idem_sweep in a transaction that stays open: visits go on, and do nothing."""
    other = connect(autocommit=False)

    def sweeps():
        # A sweep that meets one of the worker's does nothing, and holds nothing.
        other.rollback()
        other.execute("SELECT idem_sweep()")
        mine = value(other, "SELECT pg_current_xact_id_if_assigned()::text")
        return mine and value(conn, "SELECT xmax::text FROM idem_cursor WHERE purpose = 'lease'") == mine

    wait_until(sweeps)
    dead(conn, "k")
    for _ in range(3):
        seen(conn)
    assert state(conn, "k") == "started"
    other.rollback()
    becomes(conn, "k", "unknown")
    assert value(conn, "SELECT last_error FROM idem_worker_status") is None
