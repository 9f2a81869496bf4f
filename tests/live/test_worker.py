"""The background worker in a running server: what it does and shows, and whom it leaves alone.

Its troubles are in test_worker_trouble.py, restores in test_worker_restore.py, the server's life in
test_worker_server.py.
"""

import psycopg
import pytest
from psycopg import sql

from sessions import commit, end, outlive, reserve, row, rows, value, wait_until
from working import complaints, conn, connect, workers  # noqa: F401  (fixtures)
from working import PATIENCE, becomes, dead, inside, patiently, seen, state


# What it does


def test_a_dead_attempt_becomes_unknown_and_stands_in_the_views(conn):
    """Within lease, naptime and one visit; nobody asks for the key again. Past the deadline it is overdue as well."""
    conn.execute("SELECT idem_register_action_type('t', 'deduplicated_creation', resolve_deadline => '0.2 s')")
    got = dead(conn, "k", action_type="t", lease_seconds=0.3)
    assert state(conn, "k") == "started"
    wait_until(lambda: rows(conn, "SELECT FROM idem_unresolved WHERE key = 'k'"))
    late = value(conn, "SELECT max(at) - %s FROM idem_event", (got.lease_expires_at,)) or value(
        conn, "SELECT clock_timestamp() - %s", (got.lease_expires_at,))
    assert 0 <= late.total_seconds() < PATIENCE, "that of one visit; naptime is nothing here"
    wait_until(lambda: rows(conn, "SELECT FROM idem_overdue WHERE key = 'k' AND state = 'unknown'"))
    assert row(conn, "SELECT outcome FROM idem_attempts").outcome == "lapsed"


@pytest.mark.parametrize("last", ["COMMIT", "PREPARE TRANSACTION 'late'; COMMIT PREPARED 'late'"],
                         ids=["slow", "prepared"])
def test_a_row_that_commits_late_is_still_visited(connect, conn, last):
    """Its transaction was open, or prepared, while the worker's cursors went past the end of its lease."""
    slow = connect()
    slow.execute("BEGIN")
    got = dead(slow, "slow")
    *first, last = last.split("; ")
    for statement in first:
        slow.execute(statement)
    outlive(conn, got.lease_expires_at)
    dead(conn, "between")
    becomes(conn, "between", "unknown")
    seen(conn)
    assert rows(conn, "SELECT key FROM idem_actions") == [("between",)]
    slow.execute(last)
    becomes(conn, "slow", "unknown")


def test_retention(conn):
    """Scrubbed after the ttl, gone after the tombstone's; what has not ended stays."""
    conn.execute("SELECT idem_register_action_type('t', 'read_only', effect => 'local', lease => '0.05 s', "
                 "ttl => '0.5 s', tombstone_ttl => '3 s')")
    end(conn, "idem_mark_unknown", reserve(conn, "open", action_type="t"))
    got = reserve(conn, "k", action_type="t", store_request=True)
    commit(conn, got, response={"n": 1}, resource_id="r")
    emptied = "SELECT request, response, resource_id FROM idem_action WHERE key = 'k' AND state = 'x'"
    assert wait_until(lambda: rows(conn, emptied)) == [(None, None, None)]
    wait_until(lambda: not rows(conn, "SELECT FROM idem_action WHERE key = 'k'"))
    assert state(conn, "open") == "unknown"
    done = row(conn, "SELECT * FROM idem_worker_status")
    assert done.scrubbed == done.removed == 1 and done.visited >= 2 and done.last_error is None


def test_a_backlog_goes_in_batches(connect, conn):
    """20,000 dead attempts: progress is visible meanwhile, and other sessions are served."""
    conn.execute("SELECT count(*) FROM generate_series(1, 20000) AS n, "
                 "LATERAL idem_reserve('k' || n, '{}', lease_seconds => 0.01)")
    progress = set()

    def finished():
        assert commit(conn, reserve(conn, f"busy {len(progress)} {value(conn, 'SELECT random()')}")) == "committed"
        progress.add(done := value(conn, "SELECT unknown FROM idem_worker_status"))
        return done >= 20000
    wait_until(finished, timeout=120)
    assert len(progress) > 3
    # A batch is one transaction.
    longest = value(conn, "SELECT max(n) FROM (SELECT count(*) AS n FROM idem_action WHERE state = 'u' GROUP BY xmin::text) AS b")
    assert longest <= int(value(conn, "SHOW pg_idem.batch_size"))
    assert value(conn, "SELECT count(*) FROM idem_unresolved") == 20000


# What it shows


def test_its_status(conn):
    seen(conn)
    shown = row(conn, "SELECT *, last_visit_at <= clock_timestamp() AS past, "
                "next_visit_at - last_visit_at AS pause FROM idem_worker_status")
    assert shown.preloaded and shown.past and abs(shown.pause.total_seconds() - 0.01) < 0.001
    assert (shown.visited, shown.unknown, shown.scrubbed, shown.removed) == (0, 0, 0, 0)
    assert (shown.last_error, shown.last_error_at) == (None, None)


def test_its_status_is_for_those_who_may_read(conn, connect):
    """The capability is enough: the view must not ask for a superuser's privileges itself."""
    conn.execute("CREATE ROLE reader LOGIN; CREATE ROLE nobody LOGIN; SELECT idem_grant('reader', 'read')")
    try:
        reader = connect(user="reader")
        assert row(reader, "SELECT * FROM idem_worker_status").preloaded
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connect(user="nobody").execute("SELECT * FROM idem_worker_status")
        for statement in ("SELECT idem_visit(1, 1)", "UPDATE idem_worker_visit SET visited = 1"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(statement)
    finally:
        conn.execute("DROP OWNED BY reader; DROP ROLE reader, nobody")


# Databases come and go


def test_databases_can_be_copied_renamed_and_dropped(workers, complaints, conn):
    """Failure 78: while one of them has more dead attempts than a visit can do; each within four seconds."""
    neighbour = conn
    name, other, third = 'shop "one"', "Shop two", "shop, three"
    workers.createdb(name)
    with workers.connect() as admin:
        with inside(workers, name) as conn:
            conn.execute("CREATE EXTENSION pg_idem")
            conn.execute("SELECT count(*) FROM generate_series(1, 10000) AS n, "
                         "LATERAL idem_reserve('k' || n, '{}', lease_seconds => 0.01)")
        patiently(admin, "CREATE DATABASE {} TEMPLATE {}", other, name)
        patiently(admin, "ALTER DATABASE {} RENAME TO {}", name, third)
        patiently(admin, "DROP DATABASE {}", third)
        patiently(admin, "DROP DATABASE {} WITH (FORCE)", other)
        for _ in range(3):
            workers.createdb(name)
            patiently(admin, "DROP DATABASE {}", name)
        # A worker that was on its way there may be turned away, or ended; none is sent again.
        seen(neighbour)
        said = complaints()
        for _ in range(20):
            seen(neighbour)
        assert complaints() == said and len(said) <= 20


def test_an_owner_who_is_no_superuser_can_drop(workers):
    """DROP DATABASE waits for the worker to leave. WITH (FORCE) it would want the right to end the worker's session."""
    with workers.connect() as admin:
        admin.execute("CREATE ROLE shopkeeper LOGIN CREATEDB")
        try:
            with workers.connect(user="shopkeeper") as owner:
                for n in range(8):
                    owner.execute("CREATE DATABASE owned")
                    with workers.connect("owned") as conn:
                        conn.execute("CREATE EXTENSION pg_idem")
                        seen(conn)
                    patiently(owner, "DROP DATABASE {}", "owned")
        finally:
            admin.execute("DROP DATABASE IF EXISTS owned WITH (FORCE)")
            admin.execute("DROP ROLE shopkeeper")


def test_a_locked_database_does_not_keep_the_others_waiting(workers, connect, conn):
    """Nobody can enter a database while it is renamed, copied or moved, and that can take long. Failure 93."""
    workers.createdb("locked")
    with workers.connect() as admin:
        wait_until(lambda: rows(conn, "SELECT FROM pg_stat_activity WHERE backend_type = 'pg_idem launcher'"))
        with admin.transaction():
            admin.execute("ALTER DATABASE locked RENAME TO locked_still")
            dead(conn, "k")
            seen(conn)
            becomes(conn, "k", "unknown")
        admin.execute("DROP DATABASE locked_still WITH (FORCE)")
    assert "signal 9" not in workers.log(), "who waits at the door is asked to leave, not killed: that would end everybody"


def test_databases_made_in_a_loop(workers, complaints):
    """Failure 80: as pg_dumpall's script does it. Template databases are never entered, so none has to be waited for."""
    names = [f"loop {n}" for n in range(10)]
    with workers.connect() as admin:
        for name in names:
            patiently(admin, "CREATE DATABASE {}", name)
            assert not rows(admin, "SELECT FROM pg_stat_activity AS a JOIN pg_database AS d ON d.oid = a.datid "
                                   "WHERE d.datistemplate")
        for name in names:
            patiently(admin, "DROP DATABASE {}", name)
    # A worker on its way to one that is dropped is turned away.
    assert not [line for line in complaints() if "FATAL" not in line and "exited" not in line]


def test_an_invalid_database_is_left_alone(workers, complaints, conn):
    """An interrupted DROP DATABASE leaves one behind: nobody can connect to it, and nobody needs to be told so."""
    workers.createdb("half_dropped")
    with workers.connect() as admin:
        admin.execute("UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'half_dropped'")
        try:
            # A round that began before may still knock.
            for _ in range(5):
                seen(conn)
            before = len(complaints())
            for _ in range(20):
                seen(conn)
            assert complaints()[before:] == []
        finally:
            admin.execute("DROP DATABASE half_dropped")


# The extension comes and goes


def test_the_extension_can_be_dropped_and_made_while_it_is_visited(connect, conn):
    """No deadlock with the worker, no error for whoever does it; and afterwards the worker works."""
    conn.execute("SET client_min_messages = error; SET pg_idem.allow_drop = on")
    for n in range(12):
        for k in range(3):
            dead(conn, f"{n}/{k}")
        if n % 3:
            seen(conn)
        conn.execute("DROP EXTENSION pg_idem")
        conn.execute("CREATE EXTENSION pg_idem")
    dead(conn, "k")
    becomes(conn, "k", "unknown")


def test_quiet_where_the_extension_is_not(workers, complaints):
    """Failure 82: databases without it, one with a schema and tables that look like it, one where it was dropped."""
    for name in ("plain", "alike", "dropped"):
        workers.createdb(name)
    with workers.connect() as admin:
        with workers.connect("alike") as conn:
            conn.execute("CREATE TABLE idem_action (n int); CREATE TABLE trap (n int); CREATE FUNCTION "
                         "idem_visit(int, float8) RETURNS bigint LANGUAGE sql "
                         "AS 'INSERT INTO trap VALUES (1) RETURNING 1'")
        with workers.connect("dropped") as conn:
            conn.execute("CREATE EXTENSION pg_idem")
            seen(conn)
            conn.execute("DROP EXTENSION pg_idem; CREATE TABLE idem_worker_visit (n int)")
        before = len(complaints())
        admin.execute("SELECT pg_sleep(1.5)")
        with workers.connect("alike") as conn:
            assert value(conn, "SELECT count(*) FROM trap") == 0
        assert complaints()[before:] == [] and before <= 2
        for name in ("plain", "alike", "dropped"):
            patiently(admin, "DROP DATABASE {}", name)


@pytest.mark.parametrize("encoding, schema", [("UTF8", "My own schema"), ("UTF8", "ünï"), ("LATIN1", "ünï"),
                                              ("SQL_ASCII", "ünï"), ("EUC_JP", "日本")])
def test_any_schema_and_encoding(workers, encoding, schema):
    """Names in the encoding of the database, quotes in them; the database's own name needs quotes as well."""
    name = f'Sh"op {encoding}'
    workers.createdb(name, encoding=encoding)
    with workers.connect() as admin:
        try:
            with inside(workers, name, client_encoding="utf8") as conn:
                place = sql.Identifier(schema)
                conn.execute(sql.SQL("CREATE SCHEMA {0}; CREATE EXTENSION pg_idem SCHEMA {0}; SET search_path = {0}")
                             .format(place))
                dead(conn, "k")
                becomes(conn, "k", "unknown")
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
