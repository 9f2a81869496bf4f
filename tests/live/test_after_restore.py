"""A database that is older than the world: what idem_after_restore makes of it, beside sessions that go on."""

import uuid

import pytest

from sessions import Sessions, commit, end, in_background, reserve, row, rows, sqlstate, status, value, wait_for


def after_restore(conn, note="a test", **named):
    arguments = "".join(f", {name} => %({name})s" for name in named)
    return row(conn, f"SELECT * FROM idem_after_restore(%(note)s{arguments})", {"note": note, **named}).turned_unknown


@pytest.fixture
def older(shared_cluster, connect_fresh, fresh_dbname):
    """Makes the older copy of a database: what a failover, a restore or a template leaves."""
    opened = []

    def copy(*to_close):
        for conn in to_close:
            conn.close()
        name = f"{fresh_dbname}_{len(opened)}"
        with shared_cluster.connect() as admin:
            admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{fresh_dbname}"')
        opened.append(Sessions(shared_cluster, name))
        return opened[-1]

    yield copy
    for sessions in opened:
        sessions.close()


def test_what_a_lost_epoch_leaves(older, connect_fresh):
    """The original goes on after the copy was taken: retries, commits, new keys. The copy knows nothing of it."""
    conn = connect_fresh()
    conn.execute("SELECT idem_register_action_type('set', 'idempotent_mutation')")
    before = {name: reserve(conn, name) for name in ("committed later", "retried later", "silent")}
    free = reserve(conn, "free", action_type="set")
    assert end(conn, "idem_release", before["retried later"]) == "retryable"
    promoted = older(conn)()
    conn = connect_fresh()
    assert commit(conn, before["committed later"], response={"n": 1}) == "committed"
    lost = reserve(conn, "retried later")
    assert lost.granted and commit(conn, lost) == "committed"
    forgotten = reserve(conn, "never heard of")
    assert forgotten.granted

    # Unless somebody says so, the copy takes what it sees for the truth, and would send a second time.
    promoted.execute("BEGIN")
    assert reserve(promoted, "retried later").granted
    promoted.execute("ROLLBACK")
    assert after_restore(promoted, "failover") == 4
    assert reserve(promoted, "retried later").decision == "unknown"
    assert reserve(promoted, "committed later").decision == "unknown"
    assert reserve(promoted, "free", action_type="set").granted
    # Attempts that it never knew, and attempts of before, own nothing here.
    assert sqlstate(commit, promoted, lost) == "ID002"
    assert sqlstate(commit, promoted, forgotten) == "ID004"
    for got in (before["silent"], free):
        for function, named in [("idem_commit", {}), ("idem_renew", {}), ("idem_release", {}), ("idem_mark_unknown", {}),
                                ("idem_fail", {"proof": "not_sent"}), ("idem_dispatch", {})]:
            assert sqlstate(end, promoted, function, got, **named) == "ID002", function
    # This is what is lost, and what no call can bring back.
    assert reserve(promoted, "never heard of").granted


def test_as_a_copy_it_has_keys_of_its_own(older, connect_fresh):
    """The same action at the same provider, from both: two keys, so that neither is answered with the other's."""
    conn = connect_fresh()
    conn.execute("SELECT idem_register_action_type('set', 'idempotent_mutation')")
    end(conn, "idem_release", reserve(conn, "k", action_type="set"))
    copies = older(conn), older()
    original = connect_fresh()
    keys = set()
    for conn, as_copy in [(original, None), (copies[0](), False), (copies[1](), True)]:
        if as_copy is not None:
            assert after_restore(conn, as_copy=as_copy) == 1
        keys.add(reserve(conn, "k", action_type="set").provider_key)
    assert len(keys) == 2


def test_it_is_alone_with_the_ledger(connect_fresh):
    """It waits for whoever uses the ledger, and who comes meanwhile waits for it: no grant lies between the epochs."""
    observer, before, operator, later = (connect_fresh() for _ in range(4))
    before.execute("BEGIN")
    got = reserve(before, "before")
    operator.execute("BEGIN")
    turning = in_background(after_restore, operator)
    wait_for(observer, operator, "relation")
    asking = in_background(reserve, later, "before")
    wait_for(observer, later, "relation")
    before.execute("COMMIT")
    assert turning.result(20) == 1
    assert not asking.done()
    operator.execute("COMMIT")
    assert asking.result(20).decision == "unknown"
    assert sqlstate(commit, before, got) == "ID002"


def test_a_prepared_transaction_is_waited_for(connect_fresh):
    """It may hold a grant of before: end it first."""
    before, operator = connect_fresh(), connect_fresh()
    before.execute("BEGIN")
    reserve(before, "prepared")
    before.execute("PREPARE TRANSACTION 'epoch'")
    operator.execute("SET lock_timeout = '100ms'")
    assert sqlstate(after_restore, operator) == "55P03"
    before.execute("COMMIT PREPARED 'epoch'")
    assert after_restore(operator) == 1


def test_two_at_once(connect_fresh):
    """One after the other, without a deadlock."""
    observer, one, other = (connect_fresh() for _ in range(3))
    reserve(observer, "k")
    one.execute("BEGIN")
    assert after_restore(one) == 1
    waiting = in_background(after_restore, other)
    wait_for(observer, other, "relation")
    one.execute("COMMIT")
    assert waiting.result(20) == 1
    assert [found.outcome for found in rows(observer, "SELECT outcome FROM idem_attempts")] == ["restored"]


def test_a_row_that_contradicts_itself_is_left_out(connect_fresh, shared_cluster):
    """It would be served to nobody either; the log says so."""
    conn = connect_fresh()
    reserve(conn, "good"), reserve(conn, "bad")
    conn.execute("UPDATE idem_action SET state = '?' WHERE key = 'bad'")
    before = len(shared_cluster.log())
    assert after_restore(conn) == 1
    assert status(conn, "good").state == "unknown"
    assert sqlstate(reserve, conn, "bad") == "XX001"
    assert "a row was left out of idem_after_restore" in shared_cluster.log()[before:]
    assert "turned 1 actions unknown" in shared_cluster.log()[before:]


def test_memory_does_not_grow_with_the_ledger(connect_fresh):
    """20,000 rows in one transaction; measured with 200,000 it was the same."""
    conn = connect_fresh()
    value(conn, "SELECT count(*) FROM generate_series(1, 20000) AS g, idem_reserve('k' || g)")

    def resident():
        with open(f"/proc/{conn.info.backend_pid}/status") as found:
            return next(int(line.split()[1]) for line in found if line.startswith("RssAnon"))

    assert after_restore(conn) == 20000
    before = resident()
    assert after_restore(conn) == 20000
    assert resident() - before < 1024


def test_a_bound_role_may_not(connect, conn):
    """It concerns all tenants."""
    role = f"role_{uuid.uuid4().hex[:8]}"
    conn.execute(f"CREATE ROLE {role} LOGIN")
    conn.execute(f"SELECT idem_grant('{role}', 'operate')")
    conn.execute(f"SELECT idem_bind_tenant('{role}', 'acme')")
    assert sqlstate(after_restore, connect(user=role)) == "42501"
    conn.execute(f"SELECT idem_unbind_tenant('{role}', 'acme')")
    other = connect(user=role)
    assert sqlstate(after_restore, other) is None
    other.close()
    conn.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
