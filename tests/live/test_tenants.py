"""Roles bound to tenants, between sessions: who counts, when a binding is noticed, and that none costs nothing."""

import subprocess
import uuid

import pytest
from psycopg import sql

from messages import claim, put
from sessions import Sessions, commit, reserve, row, rows, sqlstate, status, value


@pytest.fixture
def roles(connect):
    """Makes login roles with every capability but `operate`; they are gone after the test."""
    admin, made = connect(), []

    def role(*groups, login=True, capable=True):
        name = f"role_{uuid.uuid4().hex[:8]}"
        admin.execute(f"CREATE ROLE {name} {'LOGIN' if login else 'NOLOGIN'}")
        made.append(name)
        for group in groups:
            admin.execute(f"GRANT {group} TO {name}")
        if capable:
            admin.execute(f"SELECT idem_grant('{name}', 'execute', 'reconcile', 'read')")
        return name

    yield role
    for name in made:
        admin.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(name)))


def bind(conn, role, tenant):
    return value(conn, "SELECT idem_bind_tenant(%s::text::regrole, %s)", (role, tenant))


def unbind(conn, role, tenant):
    return value(conn, "SELECT idem_unbind_tenant(%s::text::regrole, %s)", (role, tenant))


def test_squatting_and_reading_a_foreign_tenants_key(connect, conn, roles, key):
    """Failure 110: each tenant has its own action, and neither answers nor errors tell of the other's."""
    acme, bell = roles(), roles()
    bind(conn, acme, "acme"), bind(conn, bell, "bell")
    one, other = connect(user=acme), connect(user=bell)
    commit(one, reserve(one, key, {"secret": 1}, tenant="acme"), response={"card": "s3cret"})
    assert sqlstate(reserve, other, key, {"secret": 1}, tenant="acme") == "42501"
    assert sqlstate(status, other, key, "acme") == "42501"
    assert reserve(other, key, {"secret": 2}, tenant="bell").granted
    assert [found.tenant for found in rows(other, "SELECT tenant FROM idem_actions")] == ["bell"]


def test_a_session_that_knows_of_no_binding_hears_of_it(connect, conn, roles, key):
    """Its cache is warm, and its transaction has its locks already."""
    name = roles()
    worker = connect(user=name, autocommit=False)
    assert reserve(worker, f"{key}/1", tenant="acme").granted
    bind(conn, name, "bell")
    assert sqlstate(reserve, worker, f"{key}/2", tenant="acme") == "42501"
    worker.rollback()
    assert reserve(worker, f"{key}/2", tenant="bell").granted
    unbind(conn, name, "bell")
    assert reserve(worker, f"{key}/2", tenant="acme").granted


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_an_old_snapshot_is_no_excuse(connect, conn, roles, key, level):
    """The transaction cannot see the binding's row; it is asked as of now."""
    name = roles()
    worker = connect(user=name, autocommit=False, isolation=level)
    assert reserve(worker, f"{key}/1", tenant="acme").granted
    bind(conn, name, "bell")
    assert sqlstate(reserve, worker, f"{key}/2", tenant="acme") == "42501"


def test_a_membership_that_somebody_else_changes(connect, conn, roles, key):
    """GRANT and REVOKE of a bound group are noticed by sessions that have asked before."""
    group, name = roles(login=False), roles()
    bind(conn, group, "acme")
    worker = connect(user=name)
    assert reserve(worker, f"{key}/1", tenant="bell").granted
    conn.execute(f"GRANT {group} TO {name}")
    assert sqlstate(reserve, worker, f"{key}/2", tenant="bell") == "42501"
    conn.execute(f"REVOKE {group} FROM {name}")
    assert reserve(worker, f"{key}/2", tenant="bell").granted


def test_set_role_sheds_no_binding(connect, conn, roles, key):
    """A login bound to a tenant stays bound when it becomes a group that is not, which it may at any time."""
    group = roles(login=False)
    login = roles(group, capable=False)
    bind(conn, login, "acme")
    worker = connect(user=login)
    worker.execute(f"SET ROLE {group}")
    assert reserve(worker, f"{key}/1", tenant="acme").granted
    assert sqlstate(reserve, worker, f"{key}/2", tenant="bell") == "42501"
    assert {found.tenant for found in rows(worker, "SELECT DISTINCT tenant FROM idem_actions")} == {"acme"}


def test_set_role_narrows(connect, conn, roles, key):
    """One login for all tenants that takes the role of one: NOINHERIT, or it would have all their bindings at once."""
    acme, bell = roles(login=False), roles(login=False)
    bind(conn, acme, "acme"), bind(conn, bell, "bell")
    gate = roles(acme, bell, capable=False)
    # Membership with INHERIT is decided by the member up to PostgreSQL 15, by the grant from 16 on.
    conn.execute(f"ALTER ROLE {gate} NOINHERIT; REVOKE {acme}, {bell} FROM {gate}; GRANT {acme}, {bell} TO {gate}")
    worker = connect(user=gate)
    assert sqlstate(reserve, worker, key, tenant="acme") == "42501", "no capability of its own"
    worker.execute(f"SET ROLE {acme}")
    assert reserve(worker, key, tenant="acme").granted
    assert sqlstate(reserve, worker, key, tenant="bell") == "42501"
    worker.execute(f"SET ROLE {bell}")
    assert sqlstate(reserve, worker, key, tenant="acme") == "42501"
    assert reserve(worker, key, tenant="bell").granted


def test_a_login_and_a_role_bound_to_different_tenants(connect, conn, roles, key):
    """Both count: what one of them is not bound to is foreign."""
    group = roles(login=False)
    login = roles(group, capable=False)
    bind(conn, group, "acme"), bind(conn, group, "bell"), bind(conn, login, "bell"), bind(conn, login, "cyan")
    worker = connect(user=login)
    worker.execute(f"SET ROLE {group}")
    # The login inherits the group's, so it has acme, bell and cyan; the role it took has acme and bell.
    assert reserve(worker, key, tenant="bell").granted and reserve(worker, key, tenant="acme").granted
    assert sqlstate(reserve, worker, key, tenant="cyan") == "42501"


def test_a_role_that_is_dropped_leaves_nothing_behind(connect, conn, roles, key):
    """Its binding binds nobody, and can be taken away by number."""
    name, other = roles(), roles()
    oid = value(conn, "SELECT %s::text::regrole::oid", (name,))
    bind(conn, name, "acme")
    conn.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}; CREATE ROLE {0}").format(sql.Identifier(name)))
    assert reserve(connect(user=other), key, tenant="bell").granted
    assert value(conn, "SELECT idem_unbind_tenant(%s::regrole, 'acme')", (str(oid),)) == "unbound"


def test_the_worker_and_superusers_see_all(connect, conn, roles, key):
    """A database with bindings is swept as before."""
    name = roles()
    bind(conn, name, "acme")
    assert reserve(conn, key, tenant="bell").granted
    assert value(conn, "SELECT visited >= 0 FROM idem_sweep()")


def test_without_bindings_nothing_is_looked_up(connect_fresh):
    """A session that has asked once reads neither the table nor its index again."""
    conn = connect_fresh(autocommit=False)
    scans = "SELECT pg_stat_get_xact_numscans('idem_bound_pkey'::regclass) AS n"
    commit(conn, reserve(conn, "warm"))
    before = row(conn, scans)
    assert before.n, "the first call read the table, else nothing below would mean anything"
    for n in range(3):
        commit(conn, reserve(conn, str(n)))
        status(conn, str(n))
    assert row(conn, scans) == before


def test_bindings_travel_with_a_dump(shared_cluster, connect_fresh, fresh_dbname, roles, tmp_path):
    """By the role's name: who was bound is bound in the copy."""
    origin, name = connect_fresh(), roles(capable=False)
    bind(origin, name, "acme")
    copy = f"{fresh_dbname}_copy"
    shared_cluster.createdb(copy)
    subprocess.run([shared_cluster.bindir / "pg_dump", "-f", tmp_path / "dump.sql", shared_cluster.dsn(fresh_dbname)],
                   check=True)
    assert name in (tmp_path / "dump.sql").read_text()
    shared_cluster.psql((tmp_path / "dump.sql").read_text(), dbname=copy)
    sessions = Sessions(shared_cluster, copy)
    admin = sessions()
    admin.execute(f"SELECT idem_grant('{name}', 'execute')")
    assert sqlstate(reserve, sessions(user=name), "k", tenant="bell") == "42501"
    assert reserve(sessions(user=name), "k", tenant="acme").granted
    admin.execute(f"DROP OWNED BY {name}")
    sessions.close()


def test_a_bound_relay_leaves_foreign_tenants_messages_to_others(connect, conn, roles, outbox, key):
    """In an outbox that tenants share: it gets neither what carries a foreign action nor what tells of one, does not put
    them off, does not lock them, and is not held up by them. Those without an action are anybody's."""
    name, bell = outbox(), roles()
    conn.execute(f"SELECT idem_grant('{bell}', 'relay'); GRANT SELECT, UPDATE, DELETE ON {name} TO {bell}")
    bind(conn, bell, "bell")

    def message(tenant, n, carries=True):
        with conn.transaction():
            got = reserve(conn, f"{key}/{tenant}/{n}/{carries}", tenant=tenant)
            if not carries:
                commit(conn, got)
            return put(conn, name, action_id=got.action_id)
    foreign = [message("acme", n, carries) for n in range(40) for carries in (True, False)]
    own = [message("bell", 0), put(conn, name), message("bell", 1, carries=False)]
    before = rows(conn, f"SELECT id, xmin, xmax, due_at FROM {name} WHERE id = ANY (%s) ORDER BY id", (foreign,))
    relay, other = connect(user=bell, autocommit=False), connect()
    assert [claim(relay, name, 1)[0].id for _ in own] == own and claim(relay, name) == []
    # While its transaction is open, all the others are to be had.
    claimed = claim(other, name, 100, lease=0.2)
    assert [message.id for message in claimed] == foreign
    relay.rollback()
    after = rows(conn, f"SELECT id, due_at FROM {name} WHERE id = ANY (%s) ORDER BY id", (foreign,))
    assert after == [(message.id, message.due_at) for message in before]
    assert value(relay, f"SELECT count(*) FROM idem_outbox_redrive('{name}', %s) WHERE outcome = 'missing'", (foreign,)) == 80
    relay.rollback()
    # The same among those that failed before.
    conn.execute(f"UPDATE {name} SET due_at = now() - interval '1 s', lease_expires_at = NULL")
    relay.autocommit = True
    assert {message.id for message in claim(relay, name)} == set(own)
