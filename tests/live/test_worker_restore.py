"""The background worker sweeps while a dump is loaded: nothing is lost, nothing stands in the restore's way."""

import subprocess

import pytest

from sessions import rows, value, wait_until
from working import conn, connect, workers  # noqa: F401  (fixtures)
from working import seen


@pytest.fixture
def restored(workers):
    """A database that a dump is loaded into."""
    name = "restored"
    workers.createdb(name)
    yield name
    with workers.connect() as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def fill(conn):
    """Ended and past the ttl, with notes; dead; unknown; retryable. Returns how many. Nobody has swept."""
    conn.execute("SELECT idem_register_action_type('t', 'deduplicated_creation', effect => 'local', ttl => '3 s')")
    conn.execute("SELECT idem_register_action_type('t', 'deduplicated_creation', effect => 'local', ttl => '1 s')")
    # The evidence comes with the commit: a second later it would be too late.
    for key, ending in (("committed", "idem_commit(r.action_id, r.attempt_id, '{\"n\": 1}') "
                         "|| idem_add_evidence(r.action_id, r.attempt_id, 'applied', note => 'secret')"), ("dead", "NULL"),
                        ("unknown", "idem_mark_unknown(r.action_id, r.attempt_id)"),
                        ("released", "idem_release(r.action_id, r.attempt_id)")):
        conn.execute(f"SELECT {ending} FROM generate_series(1, 500) AS n, LATERAL idem_reserve('{key}' || n, '{{}}', "
                     "action_type => 't', lease_seconds => 0.3) AS r")
    conn.execute("SELECT pg_sleep(1.3)")
    return 2000


@pytest.mark.parametrize("slowly", [False, True], ids=["at_once", "table_by_table"])
def test_restore_while_the_worker_sweeps(workers, connect, conn, restored, tmp_path, slowly):
    """Failure 99: a worker every 10 ms while a dump is loaded, most rows due for it; it also comes between tables."""
    archive = tmp_path / "archive"
    try:
        conn.execute("ALTER SYSTEM SET pg_idem.databases = 'restored'")
        conn.execute("SELECT pg_reload_conf()")
        wait_until(lambda: value(conn, "SHOW pg_idem.databases") == "restored")
        count = fill(conn)
        subprocess.run([workers.bindir / "pg_dump", "-Fd", "-f", archive, workers.dsn(connect.dbname)], check=True)
        with workers.connect(restored) as copy:
            def load(*options):
                done = subprocess.run([workers.bindir / "pg_restore", *options, "-d", workers.dsn(restored), archive],
                                      capture_output=True, text=True)
                assert (done.returncode, done.stderr) == (0, ""), options
            if slowly:
                load("--schema-only")
                seen(copy)
                for table in ("idem_action", "idem_action_type", "idem_attempt", "idem_event", "idem_installation",
                              "idem_open"):
                    load("--data-only", "-t", table)
                    seen(copy)
            else:
                load("-j2")
            assert value(copy, "SELECT count(*) FROM idem_action") == count, "tombstones stay for ninety days"
            # It comes, but holds off until the load has been over for a while; here somebody says that it is.
            seen(copy)
            assert rows(copy, "SELECT FROM idem_action WHERE state = 'x'") == []
            assert value(copy, "SELECT paused_until > clock_timestamp() FROM idem_worker_status")
            copy.execute("UPDATE idem_worker_visit SET paused_until = NULL")
            wait_until(lambda: not rows(copy, "SELECT FROM idem_action WHERE state IN ('s', 'c')"), timeout=60)
            states = dict(rows(copy, "SELECT rtrim(key, '0123456789') || ' ' || idem_state_word(state), count(*) "
                                     "FROM idem_action GROUP BY 1"))
            assert states == {name: 500 for name in ("committed expired", "dead unknown", "unknown unknown",
                                                     "released retryable")}
            assert value(copy, "SELECT count(*) FROM idem_open WHERE queue <> 'expiry'") == 1500
            assert rows(copy, "SELECT FROM idem_event WHERE note = 'secret' OR response IS NOT NULL") == []
            assert value(copy, "SELECT last_error FROM idem_worker_status") is None
    finally:
        conn.execute("ALTER SYSTEM RESET pg_idem.databases")
        conn.execute("SELECT pg_reload_conf()")


WAYS = {"plain": [], "custom": ["-Fc"], "directory": ["-Fd", "-j4"], "data_only": ["--data-only"],
        "schema": ["-n", "public", "-e", "pg_idem"]}


@pytest.mark.parametrize("how", WAYS)
def test_every_kind_of_dump_while_the_worker_is_at_work(workers, connect, conn, restored, tmp_path, how):
    """In the original, while it is dumped, and in the copy, while it is loaded: the same rows in the end."""
    count, archive = fill(conn), tmp_path / "archive"
    subprocess.run([workers.bindir / "pg_dump", *WAYS[how], "-f", archive, workers.dsn(connect.dbname)], check=True)
    with workers.connect(restored) as copy:
        if how == "data_only":
            copy.execute("CREATE EXTENSION pg_idem")
            seen(copy)
        if how == "schema":
            copy.execute("DROP SCHEMA public")
        tool = {"custom": ["pg_restore", "--exit-on-error"], "directory": ["pg_restore", "--exit-on-error", "-j4"]}.get(
            how, ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1"])
        source = ["-f", archive] if tool[0] == "psql" else [archive]
        done = subprocess.run([workers.bindir / tool[0], *tool[1:], "-d", workers.dsn(restored), *source],
                              capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert value(copy, "SELECT count(*) FROM idem_action") == count
        copy.execute("UPDATE idem_worker_visit SET paused_until = NULL")
        wait_until(lambda: not rows(copy, "SELECT FROM idem_action WHERE state IN ('s', 'c')"), timeout=60)
        for session in (conn, copy):
            wait_until(lambda: not rows(session, "SELECT FROM idem_action WHERE state IN ('s', 'c')"), timeout=60)
            states = dict(rows(session, "SELECT rtrim(key, '0123456789') || ' ' || idem_state_word(state), count(*) "
                                        "FROM idem_action GROUP BY 1"))
            assert states == {name: 500 for name in ("committed expired", "dead unknown", "unknown unknown",
                                                     "released retryable")}
            assert value(session, "SELECT last_error FROM idem_worker_status") is None
