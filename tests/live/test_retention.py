"""Retention is judged at read time; scrubbing and removal follow; nothing that is not over ever goes."""

import pytest

from sessions import call, commit, end, outlive, reserve, row, rows, sqlstate, status, sweep, value, wait_until

SECRET = "s3cret-payload"


@pytest.fixture
def conn(connect_fresh):
    # The sweep comes by for the first time when the lease ends, so that has to be soon as well.
    conn = connect_fresh()
    conn.execute("SELECT idem_register_action_type('brief', 'idempotent_mutation', effect => 'local', "
                 "lease => '0.05 s', ttl => '0.3 s', tombstone_ttl => '1 h')")
    conn.execute("SELECT idem_register_action_type('briefest', 'idempotent_mutation', effect => 'local', "
                 "lease => '0.05 s', ttl => '0.2 s', tombstone_ttl => '0.2 s')")
    return conn


def finished(conn, key, how="commit", **named):
    """An action that ended and is past its retention; nobody swept."""
    got = reserve(conn, key, {"pay": SECRET}, actor=SECRET, target=SECRET, worker=SECRET, session_id=SECRET,
                  workflow_id=SECRET, store_request=True, **{"action_type": "brief", **named})
    assert got.granted
    if how == "commit":
        commit(conn, got, response={"said": SECRET}, resource_id=SECRET, external_request_id=SECRET)
    else:
        end(conn, "idem_fail", got, proof="refused", error={"said": SECRET})
    outlive(conn, value(conn, "SELECT expires_at FROM idem_action WHERE action_id = %s", (got.action_id,)))
    return got


def again(conn, key, request=None, **named):
    return reserve(conn, key, request or {"pay": SECRET}, actor=SECRET, target=SECRET,
                   **{"action_type": "brief", **named})


@pytest.mark.parametrize("how", ["commit", "fail"])
def test_expired_at_read_time_without_a_sweep(conn, how):
    """Failure 39: a late retry is neither replayed nor executed as new; another request still conflicts."""
    finished(conn, "k", how)
    got = again(conn, "k")
    assert (got.granted, got.decision, got.state, got.attempt_id) == (False, "expired", "expired", None)
    assert (got.response, got.error, got.resource_id, got.external_request_id) == (None, None, None, None)
    assert again(conn, "k", {"pay": "other"}).decision == "conflict"
    shown = status(conn, "k")
    assert shown.state == "expired" and SECRET not in repr(shown)
    assert value(conn, "SELECT state FROM idem_actions WHERE key = 'k'") == "expired"


@pytest.mark.parametrize("how", ["commit", "fail"])
def test_the_sweep_scrubs(conn, how):
    """Afterwards the payload is nowhere in the extension's tables, and the answers stay as they were."""
    got = finished(conn, "k", how)
    end(conn, "idem_add_evidence", got, finding="applied", note=SECRET, response={"said": SECRET}, resource_id=SECRET)
    if how == "fail":
        # Reports that contradict each other are kept until a person has decided, however long that takes.
        assert sweep(conn).scrubbed == 0 and again(conn, "k").decision == "expired"
        call(conn, "idem_decide", action_id=got.action_id, finding="not_applied", note=SECRET)
    wait_until(lambda: sweep(conn).scrubbed)
    for table in ("idem_action", "idem_event", "idem_attempt", "idem_open"):
        assert SECRET not in repr(rows(conn, f"SELECT * FROM {table} AS t")), table
    assert again(conn, "k").decision == "expired"
    assert again(conn, "k", {"pay": "other"}).decision == "conflict"
    assert status(conn, "k").state == "expired"
    assert sqlstate(commit, conn, got) in ("ID002", "ID003"), "an expired action is not brought back by its owner"


def test_tombstones_go(conn):
    """After tombstone_ttl nothing of the action is left, in no table; then the key is new."""
    got = finished(conn, "k", action_type="briefest")
    wait_until(lambda: sweep(conn).removed)
    for table in ("idem_action", "idem_event", "idem_attempt", "idem_open"):
        assert rows(conn, f"SELECT action_id FROM {table}") == [], table
    fresh = again(conn, "k", action_type="briefest")
    assert (fresh.decision, fresh.attempt) == ("execute", 1) and fresh.fence > got.fence


def test_what_is_not_over_never_expires(conn):
    """Failure 43: started with a live and with a dead lease, unknown, retryable; long past the type's ttl."""
    reserve(conn, "alive", action_type="brief", lease_seconds=60.0)
    dead = reserve(conn, "dead", action_type="brief", lease_seconds=0.01)
    end(conn, "idem_mark_unknown", reserve(conn, "unknown", action_type="brief"))
    end(conn, "idem_release", reserve(conn, "released", action_type="brief"))
    outlive(conn, value(conn, "SELECT %s + interval '0.6 s'", (dead.lease_expires_at,)))
    for _ in range(3):
        swept = sweep(conn)
        assert (swept.scrubbed, swept.removed) == (0, 0)
    states = dict(rows(conn, "SELECT key, state FROM idem_actions"))
    assert states == {"alive": "started", "dead": "unknown", "unknown": "unknown", "released": "retryable"}


def test_retention_counts_from_the_end(conn):
    """Failure 40: a long attempt does not eat its own retention."""
    got = reserve(conn, "k", action_type="brief")
    outlive(conn, value(conn, "SELECT created_at + interval '0.6 s' FROM idem_action"))
    commit(conn, got, response={"n": 1})
    assert reserve(conn, "k", action_type="brief").decision == "replay"
    kept = row(conn, "SELECT extract(epoch FROM expires_at - ended_at)::float8 AS s, ended_at - created_at > '0.5 s' AS late "
               "FROM idem_action")
    assert abs(kept.s - 0.3) < 0.001 and kept.late


def test_a_call_may_lengthen_but_not_shorten(conn):
    """ttl_seconds below the type's is raised to it, silently: retention is the administrator's."""
    for key, asked, kept in (("long", 100.0, 100.0), ("short", 0.001, 0.3), ("zero", 0.0, 0.3)):
        commit(conn, reserve(conn, key, action_type="brief", ttl_seconds=asked))
        got = value(conn, "SELECT extract(epoch FROM expires_at - ended_at)::float8 FROM idem_action WHERE key = %s", (key,))
        assert abs(got - kept) < 0.001, key


def test_default_retention_is_thirty_days(conn):
    """Also for types that nobody registered."""
    commit(conn, reserve(conn, "k"))
    assert value(conn, "SELECT expires_at - ended_at = '30 days' FROM idem_action")


def test_many_expired_rows_go_in_bounded_batches(conn):
    """Failure 42: every batch visits at most what it was told, all are scrubbed in the end, none twice."""
    conn.execute("""SELECT idem_commit(r.action_id, r.attempt_id, '{"n": 1}') FROM generate_series(1, 500) AS n,
                 LATERAL idem_reserve('k' || n, '{}', action_type => 'brief', lease_seconds => 0.01) AS r""")
    outlive(conn, value(conn, "SELECT max(expires_at) FROM idem_action"))
    batches = []
    while len(batches) < 100:
        batches.append(sweep(conn, 60))
        if not batches[-1].visited:
            break
    assert all(batch.visited <= 60 for batch in batches)
    assert sum(batch.scrubbed for batch in batches) == 500
    assert batches[-1].visited == 0


def test_toasted_answers_come_back_byte_for_byte_and_go(conn):
    """A response stored out of line, given from a column that is itself out of line: replay, then scrub."""
    conn.execute("CREATE TABLE answers AS SELECT jsonb_build_object('n', string_agg(md5(n::text), '')) AS answer "
                 "FROM generate_series(1, 6000) AS n")
    got = reserve(conn, "k", action_type="brief")
    conn.execute("SELECT idem_commit(%s, %s, answer) FROM answers", (got.action_id, got.attempt_id))
    conn.execute("CREATE TABLE kept AS SELECT * FROM idem_reserve('k', '{\"amount\": 5}', action_type => 'brief')")
    assert value(conn, "SELECT kept.response::text = answer::text FROM kept, answers")
    conn.execute("TRUNCATE answers")
    assert value(conn, "SELECT length(response->>'n') FROM kept") == 192000
    outlive(conn, value(conn, "SELECT expires_at FROM idem_action"))
    wait_until(lambda: sweep(conn).scrubbed)
    toast = value(conn, "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'idem_action'::regclass")
    assert value(conn, f"SELECT count(*) FROM {toast}") == 0


def test_a_dead_holder_blocks_for_its_lease_not_for_the_retention(connect_fresh, conn, key):
    """Failure 40: two lengths of time, one for the attempt and one for the record, which counts from the end."""
    holder = connect_fresh()
    got = reserve(holder, key, lease_seconds=0.5, ttl_seconds=40 * 86400.0)
    conn.execute("SELECT pg_terminate_backend(%s)", (holder.info.backend_pid,))
    assert reserve(conn, key).decision == "pending"
    outlive(conn, got.lease_expires_at)
    assert reserve(conn, key).decision == "unknown"
    assert commit(conn, got) == "committed"
    kept = value(conn, "SELECT expires_at - ended_at FROM idem_action WHERE key = %s", (key,))
    assert kept.days == 40
