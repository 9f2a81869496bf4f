-- idem_hold and idem_unhold: nothing new starts, all else goes on. Rolled back, for holds are never deleted.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
SELECT policy_version FROM idem_register_action_type('hold free', 'idempotent_mutation');
SELECT decision FROM idem_reserve('hold done', '{}', tenant => 'hold', attempt_id => :'one');
SELECT idem_commit(idem_action_id('hold done', 'hold'), :'one', '{"n": 1}');
SELECT decision FROM idem_reserve('hold open', '{}', tenant => 'hold', attempt_id => :'one');
SELECT decision FROM idem_reserve('hold free', '{}', tenant => 'hold', action_type => 'hold free', attempt_id => :'one');
SELECT decision FROM idem_reserve('hold lost', '{}', tenant => 'hold', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('hold lost', 'hold'), :'one');
SELECT decision FROM idem_reserve('hold again', '{}', tenant => 'hold', attempt_id => :'one');
SELECT idem_release(idem_action_id('hold again', 'hold'), :'one');
BEGIN;
SELECT idem_hold('tenant', 'hold', 'a test');
SELECT scope, value, role = session_user AS role, session_role = session_user AS session_role, note, since <= clock_timestamp() AS since FROM idem_holds;
-- No new grant: not the first, not the next, not the repeat of what may repeat, not a resumption.
\set VERBOSITY sqlstate
SAVEPOINT s; SELECT granted FROM idem_reserve('hold new', '{}', tenant => 'hold'); ROLLBACK TO s;
SAVEPOINT s; SELECT granted FROM idem_reserve('hold again', '{}', tenant => 'hold'); ROLLBACK TO s;
SAVEPOINT s; SELECT granted FROM idem_reserve('hold free', '{}', tenant => 'hold', action_type => 'hold free', attempt_id => :'one'); ROLLBACK TO s;
SELECT state FROM idem_status('hold new', 'hold');
-- What was done is replayed, what is another request is a conflict, who comes second waits.
SELECT decision, response FROM idem_reserve('hold done', '{}', tenant => 'hold');
SELECT decision FROM idem_reserve('hold done', '{"other": 1}', tenant => 'hold');
SELECT decision FROM idem_reserve('hold free', '{}', tenant => 'hold', action_type => 'hold free', attempt_id => :'two');
-- What happened can be found out and said: reconciling, evidence, marks, ends.
SELECT decision FROM idem_reserve('hold lost', '{}', tenant => 'hold', attempt_id => :'two', can_reconcile => true);
SELECT state FROM idem_resolve(idem_action_id('hold lost', 'hold'), :'two', 'applied', '{"n": 2}');
SELECT idem_add_evidence(idem_action_id('hold open', 'hold'), :'one', 'inconclusive');
SELECT idem_renew(idem_action_id('hold open', 'hold'), :'one') > clock_timestamp() AS renewed;
SAVEPOINT s; SELECT idem_fail(idem_action_id('hold open', 'hold'), :'one', 'refused'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_release(idem_action_id('hold open', 'hold'), :'one'); ROLLBACK TO s;
SELECT idem_mark_unknown(idem_action_id('hold open', 'hold'), :'one');
SELECT idem_commit(idem_action_id('hold open', 'hold'), :'one');
-- Another tenant is not concerned.
SELECT granted FROM idem_reserve('hold new', '{}');
-- The refusal says who holds it, and nothing of the key.
\set VERBOSITY terse
DO $$ BEGIN PERFORM public.idem_reserve('hold new', '{}', tenant => 'hold'); EXCEPTION WHEN SQLSTATE 'ID008' THEN
DECLARE message text; detail text; hint text; BEGIN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RAISE NOTICE '%', message; RAISE NOTICE '%', hint;
    RAISE NOTICE '%', detail ~ ('^Its tenant is held since .* by role "' || session_user || '"\.$');
END; END $$;
\set VERBOSITY sqlstate
-- Held again, for another reason: the later note counts. Lifted once, it is lifted.
SELECT idem_hold('tenant', 'hold', 'another reason');
SELECT count(*), min(note) FROM idem_holds WHERE value = 'hold';
SELECT idem_unhold('tenant', 'hold'), idem_unhold('tenant', 'hold');
SELECT count(*) FROM idem_holds;
SELECT granted FROM idem_reserve('hold new', '{}', tenant => 'hold');
SELECT n, held, note, role = session_user AS role FROM idem_held WHERE value = 'hold' ORDER BY n;
-- An action type, for all tenants; a tenant of that name is not concerned.
SELECT idem_hold('action_type', 'hold free', 'a test');
SAVEPOINT s; SELECT granted FROM idem_reserve('hold type', '{}', action_type => 'hold free'); ROLLBACK TO s;
SAVEPOINT s; SELECT granted FROM idem_reserve('hold type', '{}', action_type => 'hold free', tenant => 'hold'); ROLLBACK TO s;
SELECT granted FROM idem_reserve('hold type', '{}', tenant => 'hold free');
-- The empty tenant is a tenant.
SELECT idem_hold('tenant', '', 'a test');
SAVEPOINT s; SELECT granted FROM idem_reserve('hold empty', '{}'); ROLLBACK TO s;
SELECT granted FROM idem_reserve('hold empty', '{}', tenant => 'other');
-- A hold that is rolled back never was.
SAVEPOINT s; SELECT idem_hold('tenant', 'other', 'a test'); SAVEPOINT t; SELECT granted FROM idem_reserve('hold rolled', '{}', tenant => 'other'); ROLLBACK TO s;
SELECT granted FROM idem_reserve('hold rolled', '{}', tenant => 'other');
-- Arguments
SAVEPOINT s; SELECT idem_hold('key', 'x', 'a test'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_hold(NULL, 'x', 'a test'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_hold('tenant', NULL, 'a test'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_hold('tenant', 'x', NULL); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_hold('action_type', '', 'a test'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_hold('tenant', repeat('x', 256), 'a test'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_hold('tenant', 'x', repeat('x', 256)); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_unhold('nothing', 'x'); ROLLBACK TO s;
-- What was written down stays.
SAVEPOINT s; UPDATE idem_held SET held = false; ROLLBACK TO s;
SAVEPOINT s; DELETE FROM idem_held; ROLLBACK TO s;
SAVEPOINT s; TRUNCATE idem_held; ROLLBACK TO s;
ROLLBACK;
SELECT count(*) FROM idem_holds;
SELECT granted FROM idem_reserve('hold after', '{}');
