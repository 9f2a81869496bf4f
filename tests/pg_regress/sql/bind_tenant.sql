-- idem_bind_tenant: a bound role meets its own tenants only, in every function and view. All of it is rolled back.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
BEGIN;
CREATE ROLE regress_idem_acme;
CREATE ROLE regress_idem_both;
CREATE ROLE regress_idem_free;
CREATE ROLE regress_idem_member IN ROLE regress_idem_acme;
SELECT count(idem_grant(role::regrole, 'execute', 'reconcile', 'operate', 'read'))
FROM unnest('{regress_idem_acme,regress_idem_both,regress_idem_free}'::text[]) AS role;
SELECT idem_bind_tenant('regress_idem_acme', 'acme'), idem_bind_tenant('regress_idem_acme', 'acme') AS again,
    idem_bind_tenant('regress_idem_both', 'acme') AS both, idem_bind_tenant('regress_idem_both', 'bell') AS bell;
SELECT role, tenant, by_role = session_user AS by_role, by_session_role = session_user AS by_session_role FROM idem_bindings ORDER BY role::text, tenant;
SELECT decision FROM idem_reserve('bind', '{}', tenant => 'acme', attempt_id => :'one');
SELECT decision FROM idem_reserve('bind', '{}', tenant => 'bell', attempt_id => :'one');
SELECT decision FROM idem_reserve('bind', '{}', tenant => '', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('bind', tenant), :'one') FROM unnest('{acme,bell,""}'::text[]) AS tenant;

-- Bound to one tenant
SET LOCAL ROLE regress_idem_acme;
SELECT state FROM idem_status('bind', 'acme');
SELECT state FROM idem_status_by_id(idem_action_id('bind', 'acme'));
SELECT decision FROM idem_reserve('bind', '{}', tenant => 'acme');
SAVEPOINT s; SELECT decision FROM idem_reserve('bind', '{}', tenant => 'bell'); ROLLBACK TO s;
SAVEPOINT s; SELECT decision FROM idem_reserve('bind', '{}'); ROLLBACK TO s;
SAVEPOINT s; SELECT decision FROM idem_reserve('bind no such', '{}', tenant => 'bell'); ROLLBACK TO s;
SAVEPOINT s; SELECT state FROM idem_status('bind', 'bell'); ROLLBACK TO s;
SAVEPOINT s; SELECT state FROM idem_status('bind no such', 'bell'); ROLLBACK TO s;
-- An action of a foreign tenant looks like none, also to who knows its id and token.
SELECT state IS NULL AND action_type IS NULL AND created_at IS NULL AS nothing FROM idem_status_by_id(idem_action_id('bind', 'bell'));
SAVEPOINT s; SELECT idem_commit(idem_action_id('bind', 'bell'), :'one'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_mark_unknown(idem_action_id('bind', 'bell'), :'one'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_fail(idem_action_id('bind', 'bell'), :'one', 'refused'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_renew(idem_action_id('bind', 'bell'), :'one'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_release(idem_action_id('bind', 'bell'), :'one'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_add_evidence(idem_action_id('bind', 'bell'), :'one', 'applied'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_resolve(idem_action_id('bind', 'bell'), :'one', 'applied'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_escalate(idem_action_id('bind', 'bell'), 'note'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_decide(idem_action_id('bind', 'bell'), 'applied', 'note'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_reopen(idem_action_id('bind', 'bell'), 'note'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_commit(idem_action_id('bind no such', 'bell'), :'one'); ROLLBACK TO s;
-- Queues hand out its own only.
SELECT tenant, key FROM idem_reconcile_next(tenant => 'acme');
SELECT tenant, key FROM idem_reconcile_next();
SAVEPOINT s; SELECT tenant, key FROM idem_reconcile_next(tenant => 'bell'); ROLLBACK TO s;
SAVEPOINT s; SELECT tenant, key FROM idem_due(tenant => 'bell'); ROLLBACK TO s;
-- Views
SELECT DISTINCT tenant FROM idem_actions;
SELECT DISTINCT tenant FROM idem_unresolved;
SELECT DISTINCT tenant FROM idem_overdue;
SELECT DISTINCT tenant FROM idem_bindings;
SELECT count(*) FROM idem_attempts WHERE action_id IN (idem_action_id('bind', 'bell'), idem_action_id('bind'));
SELECT count(*) > 0 AS own FROM idem_attempts WHERE action_id = idem_action_id('bind', 'acme');
-- What concerns other tenants, or all
SELECT idem_hold('tenant', 'acme', 'own');
SELECT value FROM idem_holds WHERE scope = 'tenant';
SELECT idem_unhold('tenant', 'acme');
SAVEPOINT s; SELECT idem_hold('tenant', 'bell', 'foreign'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_hold('action_type', 'default', 'all'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_unhold('tenant', 'bell'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_bind_tenant('regress_idem_acme', 'bell'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_unbind_tenant('regress_idem_acme', 'acme'); ROLLBACK TO s;
RESET ROLE;

-- A member is bound with its group; a role may be bound to several; a role without bindings sees all.
SET LOCAL ROLE regress_idem_member;
SELECT DISTINCT tenant FROM idem_actions;
SAVEPOINT s; SELECT decision FROM idem_reserve('bind member', '{}', tenant => 'bell'); ROLLBACK TO s;
SET LOCAL ROLE regress_idem_both;
SELECT DISTINCT tenant FROM idem_actions ORDER BY tenant;
SELECT decision FROM idem_reserve('bind both', '{}', tenant => 'bell');
SAVEPOINT s; SELECT decision FROM idem_reserve('bind both', '{}'); ROLLBACK TO s;
SET LOCAL ROLE regress_idem_free;
SELECT DISTINCT tenant FROM idem_actions WHERE key LIKE 'bind%' ORDER BY tenant;
SELECT decision FROM idem_reserve('bind free', '{}', tenant => 'cyan');
RESET ROLE;

-- What concerns all tenants is not for a bound role.
SELECT idem_grant('regress_idem_acme', 'read', 'operate');
SET LOCAL ROLE regress_idem_acme;
SAVEPOINT s; SELECT idem_acknowledge_clock(); ROLLBACK TO s;
RESET ROLE;

-- SECURITY DEFINER lends no tenant: the caller's binding counts.
CREATE FUNCTION regress_idem_wrapper(tenant text) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ SELECT decision FROM public.idem_reserve('bind wrapped', '{}', tenant => tenant) $$;
SET LOCAL ROLE regress_idem_acme;
SELECT regress_idem_wrapper('acme');
SAVEPOINT s; SELECT regress_idem_wrapper('bell'); ROLLBACK TO s;
RESET ROLE;

-- The functions of a bound role see with its eyes as well, whoever runs them: SECURITY DEFINER, and an outbox's trigger.
CREATE ROLE regress_idem_shop;
SELECT idem_grant('regress_idem_shop', 'execute', 'read', 'operate', 'approve'), idem_bind_tenant('regress_idem_shop', 'acme');
CREATE SCHEMA bind_tenant AUTHORIZATION regress_idem_shop;
SELECT decision FROM idem_reserve('bind shop', '{}', tenant => 'bell');
SELECT policy_version FROM idem_register_action_type('bind approved', 'irreversible');
SELECT decision FROM idem_propose('bind approved', '{}', tenant => 'acme', action_type => 'bind approved');
SET LOCAL ROLE regress_idem_shop;
CREATE FUNCTION bind_tenant.seen() RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ SELECT string_agg(DISTINCT tenant, ',') FROM public.idem_actions $$;
SELECT idem_create_outbox('bind_tenant.box');
CREATE TABLE bind_tenant.spied (tenants text);
CREATE FUNCTION bind_tenant.spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO bind_tenant.spied SELECT string_agg(DISTINCT tenant, ',') FROM public.idem_actions;
    RETURN NULL;
END $$;
CREATE TRIGGER spy AFTER INSERT OR UPDATE ON bind_tenant.box FOR EACH ROW EXECUTE FUNCTION bind_tenant.spy();
RESET ROLE;
SELECT bind_tenant.seen();
-- Nobody's own tenants shrink by what the outbox's owner may see: a message of another tenant can be put and claimed.
SELECT count(idem_outbox_put('bind_tenant.box', 'a', 'b', 'c', '{}', action_id => idem_action_id('bind shop', 'bell')));
SELECT count(*) FROM idem_outbox_claim('bind_tenant.box');
SELECT tenants FROM bind_tenant.spied;
-- Nor does a trigger decide in the name of who puts.
SET LOCAL ROLE regress_idem_shop;
CREATE FUNCTION bind_tenant.approve() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM public.idem_approve(action_id, fingerprint) FROM public.idem_proposals WHERE key = 'bind approved';
    RETURN NULL;
END $$;
CREATE FUNCTION bind_tenant.decide() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM public.idem_decide(public.idem_action_id('bind', 'acme'), 'applied', 'note');
    RETURN NULL;
END $$;
CREATE TRIGGER approve AFTER INSERT ON bind_tenant.box FOR EACH ROW EXECUTE FUNCTION bind_tenant.approve();
RESET ROLE;
\set VERBOSITY terse
SAVEPOINT s; SELECT idem_outbox_put('bind_tenant.box', 'a', 'b', 'c', '{}'); ROLLBACK TO s;
DROP TRIGGER approve ON bind_tenant.box;
CREATE TRIGGER decide AFTER INSERT ON bind_tenant.box FOR EACH ROW EXECUTE FUNCTION bind_tenant.decide();
SAVEPOINT s; SELECT idem_outbox_put('bind_tenant.box', 'a', 'b', 'c', '{}'); ROLLBACK TO s;
\set VERBOSITY sqlstate

-- Membership that ends and bindings that end are noticed at once; the last one opens everything.
REVOKE regress_idem_acme FROM regress_idem_member;
GRANT regress_idem_free TO regress_idem_member;
SET LOCAL ROLE regress_idem_member;
SELECT decision FROM idem_reserve('bind member', '{}', tenant => 'bell');
RESET ROLE;
SELECT idem_unbind_tenant('regress_idem_both', 'bell'), idem_unbind_tenant('regress_idem_both', 'bell') AS again;
SET LOCAL ROLE regress_idem_both;
SAVEPOINT s; SELECT decision FROM idem_reserve('bind both', '{}', tenant => 'bell'); ROLLBACK TO s;
RESET ROLE;
SELECT idem_unbind_tenant('regress_idem_both', 'acme');
SET LOCAL ROLE regress_idem_both;
SELECT decision FROM idem_reserve('bind unbound', '{}', tenant => 'bell');
RESET ROLE;
SELECT tenant, n, bound FROM idem_bound WHERE role = 'regress_idem_both'::regrole ORDER BY tenant, n;

-- A role keeps its binding under another name.
ALTER ROLE regress_idem_acme RENAME TO regress_idem_zinc;
SET LOCAL ROLE regress_idem_zinc;
SAVEPOINT s; SELECT decision FROM idem_reserve('bind renamed', '{}', tenant => 'bell'); ROLLBACK TO s;
RESET ROLE;
-- A superuser is bound by nothing.
ALTER ROLE regress_idem_zinc SUPERUSER;
SET LOCAL ROLE regress_idem_zinc;
SELECT decision FROM idem_reserve('bind renamed', '{}', tenant => 'bell');
SAVEPOINT s; SELECT idem_bind_tenant('regress_idem_zinc', 'bell'); ROLLBACK TO s;
RESET ROLE;

-- Arguments
SAVEPOINT s; SELECT idem_bind_tenant(NULL, 'acme'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_bind_tenant('regress_idem_free', NULL); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_bind_tenant('regress_idem_free', repeat('x', 256)); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_bind_tenant('regress_idem_no_such', 'acme'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_bind_tenant(4000000000::oid::regrole, 'acme'); ROLLBACK TO s;
SAVEPOINT s; DELETE FROM idem_bound; ROLLBACK TO s;
\set VERBOSITY default
SELECT idem_bind_tenant('regress_idem_free', 'acme');
SET LOCAL ROLE regress_idem_free;
SELECT decision FROM idem_reserve('bind told', '{}', tenant => 'bell');
ROLLBACK;
SELECT decision FROM idem_reserve('bind after', '{}', tenant => 'bell');
