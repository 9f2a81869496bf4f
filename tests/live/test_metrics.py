"""Numbers to watch, where the library is preloaded: counted in shared memory, written down by the worker."""

import pytest

from cluster import Cluster
from sessions import commit, end, reserve, rows, together, value, wait_until

LIVE = ("actions.started", "attempts.sent", "duplicate_requests_suppressed", "conflicting_key_reuse")


@pytest.fixture(scope="module")
def cluster():
    with Cluster(settings={"fsync": False, "pg_idem.naptime": "100ms", "pg_idem.databases": "postgres,counted"},
                 preload=True) as cluster:
        cluster.psql("CREATE EXTENSION pg_idem")
        yield cluster


@pytest.fixture
def conn(cluster):
    with cluster.connect() as conn:
        yield conn


def metrics(conn):
    return dict(rows(conn, "SELECT name, value FROM idem_metrics WHERE up_to_seconds IS NULL"))


def more(conn, before):
    return {name: value - before[name] for name, value in metrics(conn).items() if name in LIVE}


def test_seeds_measurements(conn, key):
    """Seed: each measurement has its name and counts what it says."""
    before = metrics(conn)
    assert all(before[name] is not None for name in LIVE)
    got = reserve(conn, key)
    for _ in range(3):
        assert reserve(conn, key).decision == "pending"
    end(conn, "idem_fail", got, proof="refused", retryable=True, retry_after_seconds=0)
    again = reserve(conn, key)
    assert again.attempt == 2
    commit(conn, again)
    for _ in range(5):
        assert reserve(conn, key).decision == "replay"
    for _ in range(2):
        assert reserve(conn, key, request={"amount": 6}).decision == "conflict"
    assert more(conn, before) == {"actions.started": 1, "attempts.sent": 2, "duplicate_requests_suppressed": 8,
                                  "conflicting_key_reuse": 2}


def test_a_caller_who_waits_is_counted_once(conn, key):
    """However often it looks."""
    reserve(conn, key)
    before = metrics(conn)
    assert reserve(conn, key, wait_seconds=0.3).decision == "pending"
    assert more(conn, before)["duplicate_requests_suppressed"] == 1


def test_what_pull_workers_are_given_is_counted(conn, key):
    got = reserve(conn, key, store_request=True)
    end(conn, "idem_fail", got, proof="refused", retryable=True, retry_after_seconds=0)
    before = metrics(conn)
    assert len(rows(conn, "SELECT * FROM idem_due(1)")) == 1
    assert more(conn, before) == {"actions.started": 0, "attempts.sent": 1, "duplicate_requests_suppressed": 0,
                                  "conflicting_key_reuse": 0}


WRITTEN = "SELECT coalesce(sum(value), 0) FROM idem_counted WHERE name = 'actions.started'"


def test_the_worker_writes_down_what_was_counted(conn, key):
    """And nothing is counted twice, or left out, while it does."""
    before, written = metrics(conn), value(conn, WRITTEN)
    reserve(conn, key)
    wait_until(lambda: value(conn, WRITTEN) > written)
    assert more(conn, before)["actions.started"] == 1


@pytest.fixture
def quiet():
    """A server whose worker does not come, so that what is counted is written down by hand only."""
    with Cluster(settings={"fsync": False, "pg_idem.naptime": "1h", "pg_idem.databases": "none"}, preload=True) as cluster:
        cluster.psql("CREATE EXTENSION pg_idem")
        yield cluster


def test_writing_down_loses_and_repeats_nothing(quiet, key):
    """Whoever reads while counts are written down, and whatever becomes of that: each is counted once."""
    with quiet.connect() as conn, quiet.connect() as other:
        def started():
            return metrics(other)["actions.started"]

        reserve(conn, key)
        with conn.transaction(force_rollback=True):
            conn.execute("SELECT idem_add_up_counts()")
            assert (value(conn, WRITTEN), metrics(conn)["actions.started"], started()) == (1, 1, 1)
        assert (value(conn, WRITTEN), started()) == (0, 1)
        with conn.transaction():
            conn.execute("SELECT idem_add_up_counts()")
            # Another one does not wait, and does not write it down again.
            other.execute("SELECT idem_add_up_counts()")
            assert value(other, WRITTEN) == 0
        other.execute("SELECT idem_add_up_counts()")
        assert (value(other, WRITTEN), started()) == (1, 1)
        # With an old snapshot it is left for the next time.
        with other.transaction():
            other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            assert value(other, WRITTEN) == 1
            reserve(conn, key + "more")
            conn.execute("SELECT idem_add_up_counts()")
            other.execute("SELECT idem_add_up_counts()")
        assert (value(other, WRITTEN), started()) == (2, 2)
    # Other counters after a restart, and in a copy of the database.
    quiet.restart()
    quiet.psql("CREATE DATABASE copy TEMPLATE postgres")
    for dbname in ("postgres", "copy"):
        with quiet.connect(dbname=dbname) as conn:
            assert metrics(conn)["actions.started"] == 2
            reserve(conn, key + dbname)
            conn.execute("SELECT idem_add_up_counts()")
            assert (value(conn, WRITTEN), metrics(conn)["actions.started"]) == (3, 3)


def test_many_sessions_lose_no_count(cluster, conn, key):
    """One atomic increment each, from eight sessions at once, the worker writing down meanwhile."""
    commit(conn, reserve(conn, key))
    before = metrics(conn)
    sessions = [cluster.connect() for _ in range(8)]
    together(*(lambda conn=conn: [reserve(conn, key) for _ in range(250)] for conn in sessions))
    for session in sessions:
        session.close()
    assert more(conn, before)["duplicate_requests_suppressed"] == 2000


def test_databases_are_counted_apart(cluster, conn, key):
    cluster.createdb("counted")
    cluster.psql("CREATE EXTENSION pg_idem", dbname="counted")
    before = metrics(conn)
    with cluster.connect(dbname="counted") as other:
        reserve(other, key)
        reserve(other, key, request={"amount": 6})
        assert metrics(other)["actions.started"] == 1
        assert len(rows(other, "SELECT * FROM idem_conflicts")) == 1
    assert more(conn, before)["actions.started"] == 0
    cluster.psql("DROP DATABASE counted")


def test_conflicts_are_remembered_without_payload_and_without_end(conn, key):
    """A bounded ring: the last ones, by action and type; a hammering client takes no more room."""
    got = reserve(conn, key)
    for n in range(600):
        reserve(conn, key, request={"secret": n})
    seen = rows(conn, "SELECT * FROM idem_conflicts")
    assert len(seen) == 512 and {met.action_id for met in seen} == {got.action_id}
    assert {met.action_type for met in seen} == {"default"}
    assert seen[0]._fields == ("action_id", "action_type", "at")
    reserve(conn, key + "é", action_type="é" * 100)
    assert reserve(conn, key + "é", action_type="é" * 99, request={}).decision == "conflict"
    assert "é" * 50 in {met.action_type for met in rows(conn, "SELECT * FROM idem_conflicts")}


def test_a_bound_role_reads_nothing_of_other_tenants(conn, key):
    """The functions behind the views are granted with them, and keep to the binding themselves."""
    own, foreign = reserve(conn, key, tenant="own").action_id, reserve(conn, key, tenant="foreign").action_id
    for tenant in ("own", "foreign"):
        assert reserve(conn, key, tenant=tenant, request={"amount": 6}).decision == "conflict"
    seen = "SELECT action_id FROM idem_recent_conflicts() WHERE action_id = ANY (%s) ORDER BY 1"
    both = sorted([own, foreign])
    with conn.transaction(force_rollback=True):
        conn.execute("CREATE ROLE metrics_bound")
        value(conn, "SELECT idem_grant('metrics_bound', 'read')")
        conn.execute("SET LOCAL ROLE metrics_bound")
        assert [row[0] for row in rows(conn, seen, (both,))] == both
        assert value(conn, "SELECT count(*) FROM idem_live_counts()") > 0
        conn.execute("RESET ROLE")
        value(conn, "SELECT idem_bind_tenant('metrics_bound', 'own')")
        conn.execute("SET LOCAL ROLE metrics_bound")
        assert [row[0] for row in rows(conn, seen, (both,))] == [own]
        assert value(conn, "SELECT count(*) FROM idem_live_counts()") == 0
        assert rows(conn, "SELECT * FROM idem_metrics") == []


def test_without_preload_the_rest_is_counted(connect_fresh, key):
    """NULL is said, not 0, about what nobody counts; the exact ones count all the same. Failure 125: no lock is touched that
    is not there."""
    conn = connect_fresh()
    got = reserve(conn, key)
    end(conn, "idem_mark_unknown", got)
    reserve(conn, key, request={"amount": 6})
    assert {name: value for name, value in metrics(conn).items() if name in LIVE} == dict.fromkeys(LIVE)
    assert metrics(conn)["actions.unknown"] == 1
    assert rows(conn, "SELECT * FROM idem_conflicts") == []
