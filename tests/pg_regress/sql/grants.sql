-- Nothing is granted to PUBLIC; idem_grant and idem_revoke give and take capabilities. All of it is rolled back.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set members '(SELECT d.classid, d.objid FROM pg_depend AS d JOIN pg_extension AS e ON d.refclassid = ''pg_extension''::regclass AND d.refobjid = e.oid WHERE e.extname = ''pg_idem'' AND d.deptype = ''e'') AS members'
SELECT decision FROM idem_reserve('grants', '{}', attempt_id => :'one');
SELECT decision FROM idem_reserve('grants overdue', '{}', attempt_id => :'one');
SELECT idem_release(idem_action_id('grants overdue'), :'one');
BEGIN;
CREATE ROLE regress_idem_nobody;
CREATE ROLE regress_idem_execute;
CREATE ROLE regress_idem_reconcile;
CREATE ROLE regress_idem_operate;
CREATE ROLE regress_idem_read;
GRANT USAGE ON SCHEMA public TO regress_idem_nobody;
SELECT string_agg(proname, ' ' ORDER BY proname) AS functions FROM :members JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND objid = p.oid
WHERE has_function_privilege('regress_idem_nobody', p.oid, 'EXECUTE');
SELECT string_agg(relname, ' ' ORDER BY relname) AS tables FROM :members JOIN pg_class AS c ON classid = 'pg_class'::regclass AND objid = c.oid
WHERE c.relkind IN ('r', 'v') AND has_table_privilege('regress_idem_nobody', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER');
SELECT idem_grant('regress_idem_execute', 'execute'), idem_grant('regress_idem_reconcile', 'reconcile'), idem_grant('regress_idem_operate', 'operate'),
    idem_grant('regress_idem_read', 'read');
-- What each may do
SELECT role, string_agg(proname, ' ' ORDER BY proname) AS functions
FROM unnest('{regress_idem_execute,regress_idem_operate,regress_idem_read,regress_idem_reconcile}'::text[]) AS role
LEFT JOIN (:members JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND objid = p.oid) ON has_function_privilege(role, p.oid, 'EXECUTE')
    AND proname IN ('idem_reserve', 'idem_commit', 'idem_mark_unknown', 'idem_fail', 'idem_renew', 'idem_release', 'idem_add_evidence', 'idem_resolve',
        'idem_status', 'idem_status_by_id', 'idem_register_action_type', 'idem_sweep', 'idem_sweep_all', 'idem_grant', 'idem_revoke')
GROUP BY role ORDER BY role;
SELECT role, string_agg(relname, ' ' ORDER BY relname) AS tables
FROM unnest('{regress_idem_execute,regress_idem_operate,regress_idem_read,regress_idem_reconcile}'::text[]) AS role
LEFT JOIN (:members JOIN pg_class AS c ON classid = 'pg_class'::regclass AND objid = c.oid AND relkind IN ('r', 'v')) ON has_table_privilege(role, c.oid, 'SELECT')
GROUP BY role ORDER BY role;

-- execute: the whole life of an action, and nothing of the tables or of the others' work
SAVEPOINT s;
SET LOCAL ROLE regress_idem_execute;
SELECT granted FROM idem_reserve('grants mine', '{}', attempt_id => :'one');
SELECT idem_renew(idem_action_id('grants mine'), :'one') IS NOT NULL AS renewed;
SELECT idem_add_evidence(idem_action_id('grants mine'), :'one', 'inconclusive');
SELECT idem_mark_unknown(idem_action_id('grants mine'), :'one');
SELECT state FROM idem_status('grants mine');
SELECT idem_commit(idem_action_id('grants mine'), :'one', jsonb_build_object('f', encode(idem_fingerprint('{}'), 'hex')));
SELECT decision FROM idem_reserve('grants mine', '{}');
SELECT length(idem_key('a', 'b')), idem_canonical('{}'), idem_fingerprint_text('{}') = idem_fingerprint('{}') AS same;
SAVEPOINT t; SELECT count(*) FROM idem_action; ROLLBACK TO t;
SAVEPOINT t; SELECT count(*) FROM idem_actions; ROLLBACK TO t;
SAVEPOINT t; INSERT INTO idem_open VALUES (NULL); ROLLBACK TO t;
SAVEPOINT t; SELECT state FROM idem_resolve(idem_action_id('grants mine'), :'one', 'applied'); ROLLBACK TO t;
SAVEPOINT t; SELECT policy_version FROM idem_register_action_type('grants', 'read_only'); ROLLBACK TO t;
SAVEPOINT t; SELECT visited FROM idem_sweep(); ROLLBACK TO t;
SAVEPOINT t; SELECT idem_grant('regress_idem_execute', 'operate'); ROLLBACK TO t;
-- can_reconcile belongs to the capability reconcile.
SAVEPOINT t; SELECT granted FROM idem_reserve('grants other', '{}', can_reconcile => true); ROLLBACK TO t;
ROLLBACK TO s;
-- With both it may be asked for. Who called is on record.
SAVEPOINT s;
SELECT idem_grant('regress_idem_execute', 'reconcile');
SET LOCAL ROLE regress_idem_execute;
SELECT idem_mark_unknown(idem_action_id('grants'), :'one');
SELECT decision FROM idem_reserve('grants', '{}', attempt_id => :'two', can_reconcile => true);
SELECT state FROM idem_resolve(idem_action_id('grants'), :'two', 'applied');
RESET ROLE;
SELECT DISTINCT role, session_role = session_user AS session_role FROM idem_event WHERE action_id = idem_action_id('grants');
ROLLBACK TO s;
-- reconcile alone grants no attempt.
SAVEPOINT s;
SET LOCAL ROLE regress_idem_reconcile;
SELECT state FROM idem_status('grants');
SAVEPOINT t; SELECT granted FROM idem_reserve('grants other', '{}'); ROLLBACK TO t;
SAVEPOINT t; SELECT idem_commit(idem_action_id('grants'), :'one'); ROLLBACK TO t;
SAVEPOINT t; SELECT idem_fail(idem_action_id('grants'), :'one', 'refused'); ROLLBACK TO t;
ROLLBACK TO s;
-- operate
SAVEPOINT s;
SET LOCAL ROLE regress_idem_operate;
SELECT policy_version FROM idem_register_action_type('grants', 'read_only');
SELECT visited >= 0 AS swept FROM idem_sweep(1);
SAVEPOINT t; SELECT granted FROM idem_reserve('grants other', '{}'); ROLLBACK TO t;
SAVEPOINT t; SELECT count(*) FROM idem_action_type; ROLLBACK TO t;
RESET ROLE;
SELECT registered_by = session_user AS by_session_user FROM idem_action_type WHERE name = 'grants';
ROLLBACK TO s;
-- read: all views, no tables
SAVEPOINT s;
SET LOCAL ROLE regress_idem_read;
SAVEPOINT t; SELECT key, state FROM idem_actions WHERE key = 'grants'; ROLLBACK TO t;
SAVEPOINT t; SELECT count(*) >= 0 AS attempts FROM idem_attempts; ROLLBACK TO t;
SAVEPOINT t; SELECT count(*) >= 0 AS unresolved FROM idem_unresolved; ROLLBACK TO t;
SAVEPOINT t; SELECT key, state FROM idem_overdue WHERE key = 'grants overdue'; ROLLBACK TO t;
SAVEPOINT t; SELECT count(*) FROM idem_event; ROLLBACK TO t;
SAVEPOINT t; SELECT count(*) FROM idem_attempt; ROLLBACK TO t;
SAVEPOINT t; SELECT count(*) FROM idem_installation; ROLLBACK TO t;
SAVEPOINT t; SELECT state FROM idem_status('grants'); ROLLBACK TO t;
SAVEPOINT t; UPDATE idem_actions SET key = ''; ROLLBACK TO t;
ROLLBACK TO s;

-- Taking one capability leaves what another one holds, and all that was given otherwise.
SELECT idem_grant('regress_idem_execute', 'reconcile', 'read');
SELECT idem_revoke('regress_idem_execute', 'execute');
SELECT string_agg(proname, ' ' ORDER BY proname) AS functions FROM :members JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND objid = p.oid
WHERE has_function_privilege('regress_idem_execute', p.oid, 'EXECUTE')
    AND proname IN ('idem_reserve', 'idem_commit', 'idem_renew', 'idem_add_evidence', 'idem_resolve', 'idem_status');
SELECT has_table_privilege('regress_idem_execute', 'idem_actions', 'SELECT') AS views;
SELECT idem_revoke('regress_idem_execute', 'reconcile', 'read'), idem_revoke('regress_idem_execute', 'read');
SELECT count(*) AS functions FROM :members JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND objid = p.oid WHERE has_function_privilege('regress_idem_execute', p.oid, 'EXECUTE');
SELECT has_table_privilege('regress_idem_execute', 'idem_actions', 'SELECT') AS views;
-- Again does no harm.
SELECT idem_grant('regress_idem_read', 'read'), idem_grant('regress_idem_read', 'read', 'read');
-- Arguments
SAVEPOINT t; SELECT idem_grant(NULL, 'read'); ROLLBACK TO t;
SAVEPOINT t; SELECT idem_grant('regress_idem_read', NULL); ROLLBACK TO t;
SAVEPOINT t; SELECT idem_grant('regress_idem_read', 'read', NULL); ROLLBACK TO t;
SAVEPOINT t; SELECT idem_grant('regress_idem_read', 'write'); ROLLBACK TO t;
SAVEPOINT t; SELECT idem_grant('regress_idem_read', VARIADIC '{}'); ROLLBACK TO t;
SAVEPOINT t; SELECT idem_revoke('regress_idem_read', 'Read'); ROLLBACK TO t;
SAVEPOINT t; SELECT idem_grant('regress_idem_no_such_role', 'read'); ROLLBACK TO t;
-- A name that has to be quoted
CREATE ROLE "regress Idem""quoted";
SELECT idem_grant('"regress Idem""quoted"', 'execute'), idem_revoke('"regress Idem""quoted"', 'execute');
ROLLBACK;
