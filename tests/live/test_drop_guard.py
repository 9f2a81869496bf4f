"""A ledger with live actions is not dropped by accident; everything else that drops goes on."""

import subprocess
import uuid

import pytest

from sessions import commit, end, in_background, reserve, rows, sqlstate, status, value, wait_for


@pytest.fixture
def own_schema(connect_fresh):
    """The extension in a schema of its own, owned by a role of its own."""
    conn = connect_fresh()
    conn.execute("DROP EXTENSION pg_idem; CREATE SCHEMA idem; CREATE EXTENSION pg_idem SCHEMA idem")
    conn.execute("SET search_path = idem, public")
    return conn


@pytest.mark.parametrize("command", ["DROP EXTENSION pg_idem", "DROP EXTENSION IF EXISTS pg_idem CASCADE",
                                     "DROP SCHEMA idem CASCADE", "DROP EXTENSION plpgsql CASCADE"])
def test_each_way_is_refused(own_schema, connect_fresh, command):
    """By a session that has not called any function of the extension, without preloading."""
    got = reserve(own_schema, "k")
    assert sqlstate(connect_fresh().execute, command) == "55000"
    assert commit(own_schema, got) == "committed"
    assert sqlstate(connect_fresh().execute, command) is None
    assert rows(own_schema, "SELECT FROM pg_extension WHERE extname = 'pg_idem'") == []


@pytest.mark.parametrize("how", ["started", "unknown", "retryable", "proposed"])
def test_what_counts_as_live(connect_fresh, how):
    """Whatever has not ended."""
    conn = connect_fresh()
    conn.execute("SELECT idem_register_action_type('asks', 'reversible', requires_approval => true)")
    got = reserve(conn, "k", action_type="asks" if how == "proposed" else "default")
    if how == "unknown":
        end(conn, "idem_mark_unknown", got)
    elif how == "retryable":
        end(conn, "idem_release", got)
    assert status(conn, "k").state == how
    assert sqlstate(connect_fresh().execute, "DROP EXTENSION pg_idem") == "55000"


@pytest.mark.parametrize("how", ["empty", "committed", "failed"])
def test_what_does_not(connect_fresh, how):
    """An unused extension, and a ledger in which all has ended, are dropped as any other."""
    conn = connect_fresh()
    if how == "committed":
        commit(conn, reserve(conn, "k"))
    elif how == "failed":
        end(conn, "idem_fail", reserve(conn, "k"), proof="refused")
    assert sqlstate(connect_fresh().execute, "DROP EXTENSION pg_idem") is None
    assert sqlstate(conn.execute, "CREATE EXTENSION pg_idem") is None
    assert reserve(conn, "k").granted


def test_allowed(connect_fresh):
    """By the setting, in the session or in a role's settings; a session that never loaded the library included."""
    conn = connect_fresh()
    reserve(conn, "k")
    other = connect_fresh()
    other.execute("SET pg_idem.allow_drop = on")
    assert sqlstate(other.execute, "DROP EXTENSION pg_idem") is None


def test_a_reservation_that_is_not_committed_yet(connect_fresh):
    """The drop waits for it, as for any lock, and then sees it."""
    observer, worker, dropper = (connect_fresh() for _ in range(3))
    worker.execute("BEGIN")
    reserve(worker, "k")
    dropping = in_background(sqlstate, dropper.execute, "DROP EXTENSION pg_idem")
    wait_for(observer, dropper, "relation")
    worker.execute("COMMIT")
    assert dropping.result(20) == "55000"
    assert status(worker, "k").state == "started"


def test_other_people_drop_what_is_theirs(connect_fresh):
    """A role without any right on the extension: its schemas and what it owns."""
    conn, role = connect_fresh(), f"role_{uuid.uuid4().hex[:8]}"
    reserve(conn, "k")
    conn.execute(f"CREATE ROLE {role} LOGIN; CREATE SCHEMA theirs AUTHORIZATION {role}")
    theirs = connect_fresh(user=role)
    theirs.execute("CREATE TABLE theirs.idem_action (state text); DROP TABLE theirs.idem_action")
    assert sqlstate(theirs.execute, "DROP SCHEMA theirs CASCADE") is None
    assert sqlstate(theirs.execute, f"DROP OWNED BY {role}") is None
    theirs.close()
    conn.execute(f"DROP ROLE {role}")


def test_a_missing_library_keeps_nobody_from_dropping(connect_fresh):
    """Nobody can work with the ledger then; other schemas can still be dropped, and a warning says what is not guarded."""
    conn = connect_fresh()
    conn.execute("UPDATE pg_proc SET probin = '$libdir/gone' WHERE proname = 'idem_library_version'")
    told = []
    other = connect_fresh()
    other.add_notice_handler(lambda diagnostic: told.append(diagnostic.message_primary))
    other.execute("CREATE SCHEMA theirs; DROP SCHEMA theirs")
    assert len(told) == 1 and "cannot be loaded" in told[0]


def test_a_database_is_dropped_as_before(shared_cluster, connect_fresh, fresh_dbname):
    """The guard is one of the database's own: it does not see the database go."""
    conn = connect_fresh()
    reserve(conn, "k")
    conn.close()
    with shared_cluster.connect() as admin:
        admin.execute(f'DROP DATABASE "{fresh_dbname}"')


def test_a_dump_has_no_event_trigger(shared_cluster, connect_fresh, fresh_dbname):
    """It belongs to the extension, which makes it anew."""
    reserve(connect_fresh(), "k")
    dump = subprocess.run([shared_cluster.bindir / "pg_dump", shared_cluster.dsn(fresh_dbname)], check=True,
                          capture_output=True, text=True).stdout
    assert "EVENT TRIGGER" not in dump and "CREATE EXTENSION IF NOT EXISTS pg_idem" in dump
    assert value(connect_fresh(), "SELECT count(*) FROM pg_event_trigger") == 1
