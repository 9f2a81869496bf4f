"""A logical backup carries every promise over: replays, unknowns, provider keys, types; and the sweep goes on."""

import subprocess

import pytest

from sessions import Sessions, commit, end, outlive, reserve, row, rows, status, sweep, value

TABLES = ["idem_action", "idem_open", "idem_attempt", "idem_event", "idem_action_type", "idem_installation"]


def fill(conn):
    """An action in every state that this release reaches; returns the grants by name."""
    conn.execute("SELECT idem_register_action_type('t', 'idempotent_mutation', effect => 'local', lease => '70 s')")
    conn.execute("SELECT idem_register_action_type('t', 'idempotent_mutation', effect => 'local', lease => '80 s')")
    conn.execute("SELECT idem_register_action_type('brief', 'idempotent_mutation', effect => 'local', lease => '0.05 s', ttl => '0.1 s')")
    got = {name: reserve(conn, name, {"of": name}, tenant="té", store_request=True) for name in
           ("committed", "failed", "unknown", "retryable", "started", "evidence")}
    got["scrubbed"] = reserve(conn, "scrubbed", {"of": "scrubbed"}, tenant="té", action_type="brief")
    commit(conn, got["committed"], response={"n": [1, 2.50, "é"]}, resource_id="r", external_request_id="x")
    end(conn, "idem_fail", got["failed"], proof="refused", error={"e": 1})
    end(conn, "idem_mark_unknown", got["unknown"], reason="time-out")
    end(conn, "idem_fail", got["retryable"], proof="refused", retryable=True, retry_after_seconds=0.0)
    end(conn, "idem_mark_unknown", got["evidence"])
    end(conn, "idem_add_evidence", got["evidence"], finding="applied", resource_id="seen", note="mail")
    commit(conn, got["scrubbed"], response={"gone": True})
    outlive(conn, value(conn, "SELECT max(expires_at) FROM idem_action WHERE action_type = 'brief'"))
    while not sweep(conn).scrubbed:
        pass
    # No sweep has come by this one yet.
    got["dead"] = reserve(conn, "dead", {"of": "dead"}, tenant="té", lease_seconds=0.01)
    outlive(conn, got["dead"].lease_expires_at)
    return got


def contents(conn):
    return {table: rows(conn, f"SELECT t::text FROM {table} AS t ORDER BY 1") for table in TABLES}


@pytest.fixture
def origin(connect_fresh):
    conn = connect_fresh()
    conn.execute("CREATE TABLE business (n int); INSERT INTO business VALUES (1)")
    return conn, fill(conn)


@pytest.fixture
def target(shared_cluster, fresh_dbname):
    """An empty database without the extension, and sessions to it."""
    name = f"{fresh_dbname}_copy"
    shared_cluster.createdb(name)
    sessions = Sessions(shared_cluster, name)
    yield sessions
    sessions.close()


def dump(cluster, dbname, *options):
    return subprocess.run([cluster.bindir / "pg_dump", *options, cluster.dsn(dbname)], check=True, capture_output=True).stdout


def restore(cluster, dbname, archive, custom=False, *options):
    tool = [cluster.bindir / "pg_restore", "--exit-on-error", *options, "-d", cluster.dsn(dbname)] if custom else \
        [cluster.bindir / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", cluster.dsn(dbname)]
    done = subprocess.run(tool, input=archive, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def check_promises(origin, copy, got):
    """What every restored copy must do."""
    def again(conn, name, **named):
        return reserve(conn, name, {"of": name}, tenant="té", **named)

    replay = again(copy, "committed")
    assert (replay.decision, replay.response, replay.resource_id) == ("replay", {"n": [1, 2.50, "é"]}, "r")
    assert again(copy, "failed").decision == "failed"
    assert again(copy, "unknown").decision == "unknown"
    assert again(copy, "started").decision == "pending"
    assert again(copy, "scrubbed", action_type="brief").decision == "expired"
    assert reserve(copy, "committed", {"of": "other"}, tenant="té").decision == "conflict"
    assert status(copy, "evidence", "té").state == "unknown"
    assert [event.resource_id for event in rows(copy, "SELECT resource_id FROM idem_event WHERE note = 'mail'")] == ["seen"]
    assert commit(copy, got["started"], response={}) == "committed", "the token of the original owns the attempt"
    assert row(copy, "SELECT policy_version, lease FROM idem_action_type WHERE name = 't' ORDER BY 1 DESC LIMIT 1") == (2, 80000000)
    # A dead attempt is noticed here too.
    sweep(copy)
    assert status(copy, "dead", "té").state == "unknown"
    # The provider must recognise a repeated request: its key may not change.
    granted, expected = again(copy, "retryable"), again(origin, "retryable")
    assert granted.decision == "execute" and granted.provider_key == expected.provider_key


@pytest.mark.parametrize("options", [[], ["-Fc"], ["-n", "public", "-e", "pg_idem"], ["--inserts"], ["-Fc", "-Z9"]],
                         ids=["plain", "custom", "schema and extension", "inserts", "compressed"])
def test_restore_into_an_empty_database(shared_cluster, origin, target, options):
    """Failure 95: member tables are dumped without their rows unless registered."""
    conn, got = origin
    archive = dump(shared_cluster, conn.info.dbname, *options)
    if "-n" in options:
        target().execute("DROP SCHEMA public")
    restore(shared_cluster, target.dbname, archive, "-Fc" in options)
    copy = target()
    before, after = contents(conn), contents(copy)
    assert set(before.pop("idem_installation")) <= set(after.pop("idem_installation"))
    assert before == after
    check_promises(conn, copy, got)


@pytest.mark.parametrize("swept", [False, True], ids=["never swept", "swept before"])
@pytest.mark.parametrize("first", ["origin", "target"])
def test_restore_data_only(shared_cluster, connect_fresh, target, first, swept):
    """Into a database where the extension is already there, younger or older than the dump, and perhaps swept."""
    copy = target()
    if first == "target":
        copy.execute("CREATE EXTENSION pg_idem")
    conn = connect_fresh()
    conn.execute("DROP EXTENSION pg_idem; CREATE EXTENSION pg_idem")
    if first == "origin":
        copy.execute("CREATE EXTENSION pg_idem")
    got = fill(conn)
    if swept:
        sweep(copy)
        sweep(copy)
    restore(shared_cluster, target.dbname, dump(shared_cluster, conn.info.dbname, "--data-only"))
    check_promises(conn, copy, got)


def test_parallel_restore(shared_cluster, origin, target, tmp_path):
    """Directory format with four jobs: no order between our tables matters."""
    conn, got = origin
    dump(shared_cluster, conn.info.dbname, "-Fd", "-j4", "-f", tmp_path / "archive")
    subprocess.run([shared_cluster.bindir / "pg_restore", "-j4", "--exit-on-error", "-d", shared_cluster.dsn(target.dbname),
                    tmp_path / "archive"], check=True, capture_output=True)
    check_promises(conn, target(), got)


def test_a_dump_of_the_restored_copy_is_the_same(shared_cluster, origin, target):
    """Twice is as good as once."""
    conn, _ = origin
    restore(shared_cluster, target.dbname, dump(shared_cluster, conn.info.dbname))
    copy = target()
    once = contents(copy)
    copy.execute("SET pg_idem.allow_drop = on; DROP EXTENSION pg_idem; DROP TABLE business")
    restore(shared_cluster, target.dbname, dump(shared_cluster, conn.info.dbname))
    twice = contents(copy)
    once.pop("idem_installation"), twice.pop("idem_installation")
    assert once == twice


@pytest.mark.parametrize("schema", ["My Schema", "app", "ünï"])
def test_another_schema(shared_cluster, target, fresh_dbname, schema):
    """Failure 104: everything works there with an empty search_path, and is dumped and restored there."""
    conn, copy_name = target(), f"{fresh_dbname}_again"
    conn.execute(f'CREATE SCHEMA "{schema}"; CREATE EXTENSION pg_idem SCHEMA "{schema}"')
    conn.execute("SET search_path = ''")
    got = row(conn, f"""SELECT * FROM "{schema}".idem_reserve('k', '{{}}')""")
    conn.execute(f"""SELECT "{schema}".idem_register_action_type('t', 'read_only')""")
    conn.execute(f"""SELECT "{schema}".idem_commit(%s, %s)""", (got.action_id, got.attempt_id))
    conn.execute(f"""CALL "{schema}".idem_sweep_all()""")
    conn.execute(f"""SELECT "{schema}".idem_grant('postgres', 'execute', 'read'), count(*) FROM "{schema}".idem_actions""")
    shared_cluster.createdb(copy_name)
    restore(shared_cluster, copy_name, dump(shared_cluster, target.dbname))
    with shared_cluster.connect(copy_name) as copy:
        assert row(copy, f"""SELECT * FROM "{schema}".idem_reserve('k', '{{}}')""").decision == "replay"
