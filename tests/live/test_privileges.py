"""Who may do what, in whose name, and what nobody may read in logs and errors."""

import uuid

import psycopg
import pytest
from psycopg import sql

from sessions import commit, end, new_token, reserve, rows, sqlstate, status, sweep, value

ZERO = "00000000-0000-8000-8000-000000000000"
CALLS = {
    "execute": ["SELECT * FROM idem_reserve('p', '{}')", f"SELECT idem_commit('{ZERO}', '{ZERO}')",
                f"SELECT idem_mark_unknown('{ZERO}', '{ZERO}')", f"SELECT idem_fail('{ZERO}', '{ZERO}', 'refused')",
                f"SELECT idem_release('{ZERO}', '{ZERO}')", f"SELECT idem_renew('{ZERO}', '{ZERO}')",
                f"SELECT idem_add_evidence('{ZERO}', '{ZERO}', 'applied')", "SELECT * FROM idem_status('p')",
                f"SELECT * FROM idem_status_by_id('{ZERO}')", "SELECT idem_action_id('p')", "SELECT idem_key('p')",
                "SELECT idem_canonical('{}')", "SELECT idem_fingerprint('{}')", "SELECT idem_fingerprint_text('{}')",
                "SELECT idem_action_fingerprint(sha256('x'), 't')", "SELECT idem_once('p', '{}', NULL)"],
    "reconcile": [f"SELECT * FROM idem_resolve('{ZERO}', '{ZERO}', 'applied')", f"SELECT idem_renew('{ZERO}', '{ZERO}')",
                  f"SELECT idem_add_evidence('{ZERO}', '{ZERO}', 'applied')", "SELECT * FROM idem_status('p')"],
    "operate": ["SELECT idem_register_action_type('p', 'read_only')", "SELECT * FROM idem_sweep()", "CALL idem_sweep_all()",
                # Refused for what they are given, so that nothing changes.
                "SELECT idem_hold('tenant', NULL, NULL)", "SELECT idem_unhold('tenant', NULL)",
                "SELECT idem_bind_tenant(NULL, NULL)", "SELECT idem_unbind_tenant(NULL, NULL)",
                "SELECT idem_after_restore(NULL)"],
    "read": ["SELECT * FROM idem_actions", "SELECT * FROM idem_attempts", "SELECT * FROM idem_unresolved",
             "SELECT * FROM idem_overdue", "SELECT * FROM idem_holds", "SELECT * FROM idem_bindings",
             "SELECT idem_sees_tenant('p')"],
}
TABLES = ["idem_action", "idem_open", "idem_attempt", "idem_event", "idem_action_type", "idem_installation", "idem_cursor",
          "idem_held", "idem_bound"]


@pytest.fixture
def role(connect):
    """A fresh role without any right, and a session of its own."""
    name, admin = f"role_{uuid.uuid4().hex[:8]}", connect()
    admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
    yield name
    admin.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(name)))


def grant(admin, role, *capabilities):
    return value(admin, "SELECT idem_grant(%s::text::regrole, VARIADIC %s)", (role, list(capabilities)))


def test_nothing_is_granted_to_public(conn):
    """Failure 107: functions are executable by everybody unless that is taken away; and new ones will be forgotten."""
    members = """SELECT d.objid FROM pg_depend AS d JOIN pg_extension AS e ON d.refobjid = e.oid
                 WHERE e.extname = 'pg_idem' AND d.deptype = 'e' AND d.classid = %s::regclass"""
    functions = rows(conn, f"""SELECT p.oid::regprocedure::text AS name FROM pg_proc AS p WHERE oid IN ({members})
        AND EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a WHERE a.grantee = 0)""",
                     ("pg_proc",))
    assert functions == []
    relations = rows(conn, f"""SELECT c.relname FROM pg_class AS c WHERE oid IN ({members})
        AND EXISTS (SELECT FROM aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS a WHERE a.grantee = 0)""",
                     ("pg_class",))
    assert relations == []


@pytest.mark.parametrize("statement", sum(CALLS.values(), []) + [
    *(f"SELECT * FROM {table}" for table in TABLES), "INSERT INTO idem_cursor VALUES ('x', now())",
    "SELECT idem_grant('postgres', 'execute')", "SELECT idem_revoke('postgres', 'execute')"])
def test_a_role_without_capabilities_is_refused(connect, role, statement):
    """42501 for each function, view and table."""
    assert sqlstate(connect(user=role).execute, statement) == "42501"


@pytest.mark.parametrize("capability", list(CALLS))
def test_a_capability_is_enough_and_no_more(connect, conn, role, capability):
    """All of its own calls pass the privilege check, no other capability's, no table; revoking takes it all back."""
    assert grant(conn, role, capability) == "granted"
    other = connect(user=role)
    own = CALLS[capability]
    for statement in own:
        assert sqlstate(other.execute, statement) != "42501", statement
    for statement in set(sum(CALLS.values(), [])) - set(own):
        if capability == "execute" and statement in CALLS["reconcile"] or "idem_action_id" in statement:
            continue
        if capability == "reconcile" and statement == f"SELECT * FROM idem_status_by_id('{ZERO}')":
            continue
        assert sqlstate(other.execute, statement) == "42501", statement
    for table in TABLES:
        assert sqlstate(other.execute, f"SELECT * FROM {table}") == "42501", table
    value(conn, "SELECT idem_revoke(%s::text::regrole, %s)", (role, capability))
    for statement in own:
        assert sqlstate(other.execute, statement) == "42501", statement


def test_read_shows_rows_without_secrets(connect, conn, role, key):
    """The views answer to a role that has `read` alone; none of them has a payload or a token."""
    got = reserve(conn, key, {"pay": "s3cret"}, store_request=True)
    commit(conn, got, response={"pay": "s3cret"})
    grant(conn, role, "read")
    other = connect(user=role)
    for view in ("idem_actions", "idem_attempts", "idem_unresolved", "idem_overdue"):
        shown = repr(rows(other, f"SELECT * FROM {view}"))
        assert "s3cret" not in shown and str(got.attempt_id) not in shown
    assert value(other, "SELECT state FROM idem_actions WHERE key = %s", (key,)) == "committed"


def test_a_granted_role_runs_the_whole_cycle(connect, conn, role, key):
    """Without any right on the tables."""
    grant(conn, role, "execute", "reconcile")
    other = connect(user=role)
    got = reserve(other, key)
    end(other, "idem_mark_unknown", got)
    finder = reserve(other, key, can_reconcile=True)
    assert finder.decision == "reconcile"
    end(other, "idem_add_evidence", finder, finding="applied")
    assert rows(conn, "SELECT DISTINCT role, session_role FROM idem_event WHERE action_id = %s",
                (got.action_id,)) == [(role, role)]


def test_revoking_one_capability_keeps_what_another_holds(connect, conn, role):
    """idem_status belongs to execute and to reconcile."""
    grant(conn, role, "execute", "reconcile")
    value(conn, "SELECT idem_revoke(%s::text::regrole, 'reconcile')", (role,))
    other = connect(user=role)
    assert sqlstate(other.execute, "SELECT * FROM idem_status('p')") is None
    assert sqlstate(other.execute, CALLS["reconcile"][0]) == "42501"


@pytest.mark.parametrize("capabilities, state", [([], "22023"), (["nothing"], "22023"), ([None], "22004"),
                                                 (["execute", "EXECUTE"], "22023")])
def test_words_that_are_no_capability(conn, role, capabilities, state):
    """Nothing is granted in part."""
    assert sqlstate(value, conn, "SELECT idem_grant(%s::text::regrole, VARIADIC %s::text[])", (role, capabilities)) == state
    assert value(conn, "SELECT idem_has_capability(%s::text::regrole, 'execute')", (role,)) is False


@pytest.mark.parametrize("name", ['Role "quoted"', "semi;colon", "sp ace"])
def test_odd_role_names(conn, name):
    """They are quoted wherever they are written into a statement."""
    identifier = sql.Identifier(name)
    conn.execute(sql.SQL("CREATE ROLE {}").format(identifier))
    try:
        assert value(conn, "SELECT idem_grant(quote_ident(%s)::regrole, 'execute', 'read', 'operate', 'reconcile')",
                     (name,)) == "granted"
        assert value(conn, "SELECT idem_revoke(quote_ident(%s)::regrole, 'execute', 'read', 'operate', 'reconcile')",
                     (name,)) == "revoked"
    finally:
        conn.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(identifier))


HOSTILE = """
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.bang(anyelement, anyelement) RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'captured' USING ERRCODE = 'XXHOS'; END $$;
CREATE OPERATOR hostile.= (FUNCTION = hostile.bang, LEFTARG = anyelement, RIGHTARG = anyelement);
CREATE OPERATOR hostile.<> (FUNCTION = hostile.bang, LEFTARG = anyelement, RIGHTARG = anyelement);
CREATE OPERATOR hostile.< (FUNCTION = hostile.bang, LEFTARG = anyelement, RIGHTARG = anyelement);
"""
for _name, _arguments in [("now", ""), ("clock_timestamp", ""), ("lower", "text"), ("length", "text"), ("format", "text"),
                          ("coalesce2", "int"), ("hashtextextended", "text, bigint"), ("to_jsonb", "anyelement"),
                          ("round", "numeric"), ("idem_sweep", "int"), ("idem_microseconds", "text, interval"),
                          ("idem_state_word", '"char"')]:
    HOSTILE += f"""CREATE FUNCTION hostile.{_name}({_arguments}) RETURNS text LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'captured' USING ERRCODE = 'XXHOS'; END $$;"""


def test_a_hostile_session_changes_nothing(connect_fresh):
    """Schemas in front of pg_catalog, temp tables, operators and functions named like ours and like the built-in ones."""
    admin = connect_fresh()
    admin.execute(HOSTILE)
    conn = connect_fresh()
    for table in TABLES + ["idem_actions"]:
        conn.execute(f"CREATE TEMP TABLE {table} AS SELECT 1 AS trap")
    conn.execute("CREATE TEMP TABLE pg_class AS SELECT 1 AS trap")
    conn.execute("SET search_path = pg_temp, hostile, pg_catalog")
    text = [""" SELECT r.granted, r.action_id, r.attempt_id FROM public.idem_reserve('k', '{}', action_type => 't') AS r"""]
    conn.execute("SELECT public.idem_register_action_type('t', 'idempotent_mutation', effect => 'local')")
    conn.execute("SELECT public.idem_register_action_type('t', 'idempotent_mutation', effect => 'external')")
    granted, action_id, token = conn.execute(text[0]).fetchone()
    assert granted
    conn.execute("SELECT public.idem_renew(%s, %s)", (action_id, token))
    conn.execute("SELECT public.idem_mark_unknown(%s, %s)", (action_id, token))
    conn.execute("SELECT public.idem_add_evidence(%s, %s, 'inconclusive')", (action_id, token))
    conn.execute("SELECT public.idem_commit(%s, %s)", (action_id, token))
    conn.execute("SELECT public.idem_sweep(10)")
    conn.execute("CALL public.idem_sweep_all()")
    conn.execute("SELECT * FROM public.idem_status('k')")
    conn.execute("SELECT * FROM public.idem_actions")
    conn.execute("SELECT * FROM public.idem_overdue")
    conn.execute("SELECT public.idem_grant('postgres', 'read'), public.idem_revoke('postgres', 'read')")
    assert value(admin, "SELECT count(*) FROM idem_action WHERE state = 'c'") == 1


@pytest.mark.parametrize("force", ["ENABLE", "FORCE"])
def test_row_level_security_changes_nothing(connect_fresh, force):
    """Failure 109: an invisible row must give pending or replay, never a second grant; the sweep sees it too."""
    admin = connect_fresh()
    for table in TABLES:
        admin.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        admin.execute(f"ALTER TABLE {table} {force} ROW LEVEL SECURITY")
    role = f"role_{uuid.uuid4().hex[:8]}"
    admin.execute(f"CREATE ROLE {role} LOGIN; SELECT idem_grant('{role}', 'execute', 'operate')")
    conn = connect_fresh(user=role)
    got = reserve(conn, "k")
    assert reserve(conn, "k").decision == "pending"
    assert commit(conn, got, response={"n": 1}) == "committed"
    assert reserve(conn, "k").decision == "replay"
    dead = reserve(conn, "dead", lease_seconds=0.001)
    while status(conn, "dead").lease_expires_at and not sweep(conn).unknown:
        pass
    assert status(conn, "dead").state == "unknown"
    assert commit(conn, dead) == "committed"
    conn.close()
    admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_security_definer_wrapper(connect, conn, role, key):
    """Works for a role that may call the wrapper alone; history says who really called, not whose rights were used."""
    conn.execute("CREATE SCHEMA IF NOT EXISTS app")
    conn.execute("""CREATE OR REPLACE FUNCTION app.unknown(k text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $$ DECLARE r record; BEGIN
        SELECT * INTO r FROM public.idem_reserve(k, '{}'); RETURN public.idem_mark_unknown(r.action_id, r.attempt_id); END $$""")
    conn.execute(sql.SQL("GRANT USAGE ON SCHEMA app TO {}").format(sql.Identifier(role)))
    other = connect(user=role)
    assert sqlstate(reserve, other, key) == "42501"
    assert value(other, "SELECT app.unknown(%s)", (key,)) == "unknown"
    assert rows(conn, "SELECT role, session_role FROM idem_event AS e JOIN idem_action USING (action_id) WHERE key = %s",
                (key,)) == [(role, role)]


def test_secrets_stay_out_of_the_log_and_of_errors(shared_cluster, connect, key):
    """Keys, payloads, tokens and names given as parameters are in no message; a conflict's log line has no statement."""
    conn, secret = connect(), f"s3cret-{uuid.uuid4().hex}"
    before, told = len(shared_cluster.log()), []

    def failing(function, *args, **named):
        with pytest.raises(psycopg.Error) as caught:
            function(*args, **named)
        diagnostics = caught.value.diag
        told.extend([str(caught.value), diagnostics.message_detail, diagnostics.message_hint, diagnostics.context])

    token = new_token()
    got = reserve(conn, secret, {"pay": secret}, attempt_id=token, tenant=secret, actor=secret, action_type="default")
    assert reserve(conn, secret, {"pay": "other" + secret}, tenant=secret).decision == "conflict"
    conn.execute(f"SELECT * FROM idem_reserve('{secret}', '{{\"pay\": \"{secret}x\"}}', tenant => '{secret}')")
    failing(reserve, conn, secret, {"pay": secret}, fingerprint=b"x" * 32)
    failing(reserve, conn, secret + "\u200b")
    failing(reserve, conn, secret + 300 * "x")
    failing(reserve, conn, secret, tenant=secret + 300 * "x")
    failing(reserve, conn, secret, tenant=secret, attempt_id="00000000-0000-1000-8000-00005ec4e700")
    failing(reserve, conn, secret, tenant=secret, action_type=secret + 100 * "x")
    failing(commit, conn, got, on_lost=secret)
    failing(end, conn, "idem_fail", got, proof=secret)
    failing(end, conn, "idem_add_evidence", got, finding=secret)
    failing(commit, conn, got._replace(attempt_id=uuid.uuid4()), response={"pay": secret})
    failing(value, conn, "SELECT idem_fingerprint_text(%s)", ('{"a": "%s", "a": 1}' % secret,))
    failing(value, conn, "SELECT idem_fingerprint_text(%s)", ('{"%s"' % secret,))
    failing(value, conn, "SELECT idem_register_action_type(%s, %s)", (secret, secret))
    log = shared_cluster.log()[before:]
    for hidden in (secret, token):
        assert not [line for line in log.splitlines() if hidden in line]
        assert hidden not in repr(told)
    assert str(got.action_id) in log, "the conflict is logged, by the action's id"
