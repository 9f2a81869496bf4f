"""Reconcilers and pull workers by the dozen: no item twice, nobody waits, nothing is left lying."""

import pytest

from cluster import Cluster
from sessions import (call, commit, end, in_background, outlive, reserve, resolve, row, rows, status, sweep, together,
                      value, wait_for, wait_until)

NEXT = "SELECT * FROM idem_reconcile_next(%s)"
DUE = "SELECT * FROM idem_due(%s)"


@pytest.fixture
def conn(connect_fresh):
    conn = connect_fresh()
    conn.execute("SELECT idem_register_action_type('create', 'deduplicated_creation', probes_required => 1,"
                 " settle_delay => '0', probe_interval => '0')")
    conn.execute("SELECT idem_register_action_type('set', 'idempotent_mutation')")
    return conn


def unknown(conn, key, **named):
    got = reserve(conn, key, action_type="create", **named)
    end(conn, "idem_mark_unknown", got)
    return got


def dead(conn, key):
    """Its lease is over, so that a look-up that finds nothing counts."""
    got = reserve(conn, key, action_type="create", lease_seconds=0.01)
    outlive(conn, got.lease_expires_at)
    return got


def retryable(conn, key, store_request=True, **named):
    got = reserve(conn, key, action_type="create", store_request=store_request, **named)
    assert end(conn, "idem_fail", got, proof="refused", retryable=True, retry_after_seconds=0) == "retryable"
    return got


def take_all(conn, statement, most):
    taken = []
    while batch := rows(conn, statement, (most,)):
        assert len(batch) <= most
        taken += batch
    return taken


@pytest.mark.parametrize("statement, make", [(NEXT, unknown), (DUE, retryable)], ids=["reconcilers", "workers"])
def test_each_item_is_given_to_one_of_many(conn, connect_fresh, statement, make):
    """Failure 38: however many take from the queue at once, each item goes to one of them, and all go."""
    keys = {f"k{n}" for n in range(300)}
    for key in sorted(keys):
        make(conn, key)
    workers = [connect_fresh() for _ in range(8)]
    taken = sum(together(*(lambda conn=conn: take_all(conn, statement, 7) for conn in workers)), [])
    assert sorted(item.key for item in taken) == sorted(keys)
    assert len({item.attempt_id for item in taken}) == len({item.fence for item in taken}) == 300
    assert rows(conn, statement, (10,)) == []


@pytest.mark.parametrize("statement, make", [(NEXT, unknown), (DUE, retryable)], ids=["reconcilers", "workers"])
def test_nobody_waits_for_an_item_in_other_hands(conn, connect_fresh, statement, make):
    """What an open transaction has taken is passed over at once; its ROLLBACK gives it back."""
    for key in ("first", "second"):
        make(conn, key)
    slow = connect_fresh(autocommit=False)
    assert [item.key for item in rows(slow, statement, (1,))] == ["first"]
    conn.execute("SET statement_timeout = '2s'")
    assert [item.key for item in rows(conn, statement, (10,))] == ["second"]
    assert rows(conn, statement, (10,)) == []
    slow.rollback()
    assert [item.key for item in rows(conn, statement, (10,))] == ["first"]


def test_a_row_locked_by_its_owner_is_passed_over(conn, connect_fresh):
    """The owner's late commit is under way: neither a reconciler's lease nor a wait comes between."""
    late = unknown(conn, "late")
    unknown(conn, "other")
    owner = connect_fresh(autocommit=False)
    commit(owner, late, response={})
    conn.execute("SET statement_timeout = '2s'")
    assert [item.key for item in rows(conn, NEXT, (10,))] == ["other"]
    owner.commit()
    assert rows(conn, NEXT, (10,)) == [] and status(conn, "late").state == "committed"


def test_rows_taken_in_opposite_order_do_not_lock_each_other_out(conn, connect_fresh):
    """Two transactions hold an action each and take from the queue: no wait, so no 40P01."""
    grants = [unknown(conn, key) for key in ("a", "b", "c", "d")]
    one, two = connect_fresh(autocommit=False), connect_fresh(autocommit=False)
    commit(one, grants[0])
    commit(two, grants[1])
    for conn in (one, two):
        conn.execute("SET LOCAL statement_timeout = '2s'")
    taken = [item.key for conn in (one, two) for item in rows(conn, NEXT, (1,))]
    assert sorted(taken) == ["c", "d"]
    one.commit()
    two.commit()


def test_the_nearest_deadline_is_served_first(conn):
    """Whatever the order of their coming; what is being looked at, or was a moment ago, is not in the way."""
    for n, hours in enumerate([9, 2, 7, 4]):
        conn.execute("SELECT idem_register_action_type(%s, 'deduplicated_creation',"
                     " resolve_deadline => make_interval(hours => %s))", (f"in{hours}", hours))
        end(conn, "idem_mark_unknown", reserve(conn, f"h{hours}", action_type=f"in{hours}"))
    first = row(conn, NEXT, (1,))
    resolve(conn, first, "inconclusive", next_probe_seconds=3600)
    assert [first.key] + [item.key for item in rows(conn, NEXT, (10,))] == ["h2", "h4", "h7", "h9"]


def test_plain_retries_starve_nobody(conn, connect_fresh):
    """Clients that ask again and again neither take an unknown action from the reconcilers nor put it off."""
    unknown(conn, "k")
    before = row(conn, "SELECT xmin::text, ctid::text FROM idem_action")
    clients = [connect_fresh() for _ in range(4)]
    together(*(lambda conn=conn: [reserve(conn, "k", action_type="create") for _ in range(100)] for conn in clients))
    assert row(conn, "SELECT xmin::text, ctid::text FROM idem_action") == before
    assert [item.key for item in rows(conn, NEXT, (1,))] == ["k"]


@pytest.mark.parametrize("rounds", [1, 3])
def test_dead_attempts_wait_for_no_sweep(conn, rounds):
    """Contract 8: with no worker and no sweep, whoever comes for work finds them, first and later attempts."""
    key = "dead"
    got = reserve(conn, key, action_type="create", lease_seconds=0.01)
    for _ in range(rounds):
        outlive(conn, got.lease_expires_at)
        [found] = rows(conn, NEXT, (10,))
        assert found.key == key
        assert resolve(conn, found, "not_applied").state == "retryable"
        got = reserve(conn, key, action_type="create", lease_seconds=0.01)
        assert got.granted


def test_more_dead_attempts_than_one_call_looks_at(conn):
    """A backlog behind the cursor is worked off by calls alone: each goes on where the last one stopped."""
    conn.execute("SELECT FROM generate_series(1, 3000) AS n, LATERAL"
                 " idem_reserve('k' || n, action_type => 'create', lease_seconds => 0.001)")
    conn.execute("SELECT pg_sleep(0.05)")
    taken = []
    for _ in range(60):
        taken += rows(conn, "SELECT * FROM idem_reconcile_next(100)")
    assert len({item.key for item in taken}) == len(taken) == 3000


@pytest.mark.parametrize("end_of_worker", ["terminate", "rollback"])
def test_seeds_worker_dies_after_local_reservation(conn, connect_fresh, end_of_worker):
    """Seed: another worker reconciles or safely resumes after the lease expires. Here it resumes, by idem_due."""
    worker = connect_fresh(autocommit=False)
    got = reserve(worker, "job", action_type="set", store_request=True, lease_seconds=0.05)
    if end_of_worker == "rollback":
        worker.rollback()
        assert rows(conn, DUE, (10,)) == [], "a reservation that was rolled back is none"
        return
    worker.commit()
    conn.execute("SELECT pg_terminate_backend(%s)", (worker.info.backend_pid,))
    assert rows(conn, DUE, (10,)) == [], "the lease runs still"
    outlive(conn, got.lease_expires_at)
    [resumed] = rows(conn, DUE, (10,))
    assert (resumed.granted, resumed.key, resumed.attempt, resumed.request) == (True, "job", 2, {"amount": 5})
    assert resumed.fence > got.fence
    assert commit(conn, resumed, response={"done": True}) == "committed"


def test_workers_and_reconcilers_share_an_action_and_never_both_have_it(conn, connect_fresh):
    """What may be repeated is open to both: one of them gets it, whoever comes first."""
    for n in range(100):
        end(conn, "idem_mark_unknown", reserve(conn, f"k{n}", action_type="set", store_request=True))
    sessions = [connect_fresh() for _ in range(6)]
    statements = [NEXT, DUE] * 3
    taken = sum(together(*(lambda conn=conn, s=s: take_all(conn, s, 5) for conn, s in zip(sessions, statements))), [])
    assert sorted(item.key for item in taken) == sorted(f"k{n}" for n in range(100))


def test_repeatable_read_skips_what_changed_meanwhile(conn, connect_fresh):
    """Under an old snapshot a row that somebody else has taken since is passed over, never taken twice."""
    unknown(conn, "a")
    unknown(conn, "b")
    old = connect_fresh(autocommit=False)
    old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    old.execute("SELECT 1 FROM idem_action")
    taken = row(conn, NEXT, (1,))
    rest = rows(old, NEXT, (10,))
    old.commit()
    assert {taken.key} | {item.key for item in rest} == {"a", "b"} and len(rest) == 1


def test_a_late_success_against_a_retried_action_is_seen_and_kept(conn):
    """Issue: attempt 1 was disproved, attempt 2 runs or is done; attempt 1's success is never dropped."""
    first = dead(conn, "retried")
    found = row(conn, NEXT, (1,))
    assert resolve(conn, found, "not_applied").state == "retryable"
    assert end(conn, "idem_commit", first, resource_id="re_1", on_lost="record") == "superseded"
    listed = row(conn, "SELECT * FROM idem_unresolved")
    assert (listed.key, listed.state, listed.discrepancy) == ("retried", "retryable", True)
    assert reserve(conn, "retried", action_type="create").decision == "review"
    assert call(conn, "idem_decide", action_id=first.action_id, finding="applied", note="re_1 is it",
                resource_id="re_1") == "committed"
    assert rows(conn, "SELECT * FROM idem_unresolved") == []
    # And where attempt 2 has been committed with something else.
    second = dead(conn, "twice")
    assert resolve(conn, row(conn, NEXT, (1,)), "not_applied").state == "retryable"
    again = reserve(conn, "twice", action_type="create")
    assert commit(conn, again, resource_id="re_3") == "committed"
    assert end(conn, "idem_add_evidence", second, finding="applied", resource_id="re_2") == "discrepancy"
    listed = row(conn, "SELECT * FROM idem_unresolved")
    assert (listed.key, listed.state, listed.resource_id) == ("twice", "committed", "re_3")
    assert listed.last_resource_id == "re_2"


def test_a_crash_forgets_no_lease():
    """A reconciler's and a worker's lease are flushed whatever synchronous_commit says."""
    with Cluster(settings={"synchronous_commit": False, "wal_writer_delay": "10s", "wal_writer_flush_after": 0,
                           "autovacuum": False, "checkpoint_timeout": "1h", "bgwriter_lru_maxpages": 0},
                 preload=False) as cluster:
        cluster.psql("CREATE EXTENSION pg_idem; CHECKPOINT")
        with cluster.connect() as conn:
            conn.execute("SELECT idem_register_action_type('create', 'deduplicated_creation')")
            unknown(conn, "unknown")
            retryable(conn, "retryable")
            for statement in (NEXT, DUE):
                with cluster.connect(autocommit=False) as worker, cluster.connect() as observer:
                    assert len(rows(worker, statement, (1,))) == 1
                    written = value(observer, "SELECT pg_current_wal_insert_lsn()::text")
                    worker.commit()
                    assert value(observer, "SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn", (written,))


def test_an_explicit_wait_of_the_owner_ends_with_the_reconciler(conn, connect_fresh):
    """The owner's commit meets a row that a reconciler is just taking: it waits, and is told that it lost."""
    got = unknown(conn, "k")
    reconciler, owner = connect_fresh(autocommit=False), connect_fresh()
    assert len(rows(reconciler, NEXT, (1,))) == 1
    waiting = in_background(end, owner, "idem_commit", got, on_lost="record")
    wait_for(conn, owner, "transactionid", "tuple")
    reconciler.commit()
    assert waiting.result(10) == "superseded"


def queues(conn):
    return dict(rows(conn, "SELECT queue, count(*) FROM idem_open GROUP BY queue"))


def test_what_workers_cannot_be_granted_is_not_looked_at_by_each_call(conn):
    """Actions whose request only their client has, ahead of one that anybody can carry out; and they go on with him."""
    for n in range(50):
        retryable(conn, f"client {n}", store_request=None)
    retryable(conn, "worker")
    assert [item.key for item in rows(conn, DUE, (1,))] == ["worker"]
    assert queues(conn) == {"client": 50, "lease": 1}
    got = reserve(conn, "client 7", action_type="create")
    assert got.granted and end(conn, "idem_release", got) == "retryable"
    assert queues(conn) == {"client": 49, "execution": 1, "lease": 1}
    assert rows(conn, DUE, (1,)) == [] and queues(conn) == {"client": 50, "lease": 1}


def test_an_approval_lapses_also_where_only_the_client_has_the_request(conn):
    conn.execute("SELECT idem_register_action_type('pay', 'irreversible', approval_ttl => '0.3 s', distinct_approver => 'none')")
    got = reserve(conn, "k", action_type="pay", store_request=False)
    seal = value(conn, "SELECT fingerprint FROM idem_proposals")
    assert call(conn, "idem_approve", action_id=got.action_id, fingerprint=seal) == "approved"
    assert rows(conn, DUE, (1,)) == [] and queues(conn) == {"client": 1}
    outlive(conn, value(conn, "SELECT approval_expires_at FROM idem_action"))
    wait_until(lambda: sweep(conn).visited)
    assert status(conn, "k").state == "rejected"


def test_held_actions_do_not_keep_workers_from_others(conn):
    for n in range(20):
        retryable(conn, f"held {n}", tenant="held")
    retryable(conn, "free")
    call(conn, "idem_hold", scope="tenant", value="held", note="n")
    assert [item.key for item in rows(conn, DUE, (1,))] == ["free"]
    call(conn, "idem_unhold", scope="tenant", value="held")
    assert [item.tenant for item in rows(conn, DUE, (1,))] == ["held"]
