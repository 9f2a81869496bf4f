-- idem_dispatch: marks that the effect may leave, and returns the key to send with it. Once for each attempt.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
SELECT policy_version FROM idem_register_action_type('dispatch', 'reversible', marks_dispatch => true);
-- The key is not shown before the mark.
SELECT granted, decision, provider_key FROM idem_reserve('dispatch', '{}', action_type => 'dispatch', attempt_id => :'one');
SELECT granted, decision, provider_key FROM idem_reserve('dispatch', '{}', action_type => 'dispatch', attempt_id => :'one');
SELECT idem_dispatch(idem_action_id('dispatch'), :'one') AS provider_key \gset
SELECT :'provider_key' ~ '^[0-9a-f-]{36}$' AS shown, dispatched_at <= clock_timestamp() AS marked, state
FROM idem_action WHERE key = 'dispatch';
-- Again: too late, for the owner and for whoever shares his token. Nobody resumes.
SELECT idem_dispatch(idem_action_id('dispatch'), :'one');
SELECT decision FROM idem_reserve('dispatch', '{}', action_type => 'dispatch', attempt_id => :'one');
-- What was marked cannot be taken back as not sent.
SELECT idem_fail(idem_action_id('dispatch'), :'one', 'not_sent');
SELECT idem_release(idem_action_id('dispatch'), :'one');
SELECT idem_commit(idem_action_id('dispatch'), :'one');
SELECT idem_dispatch(idem_action_id('dispatch'), :'one');
SELECT event FROM idem_event WHERE action_id = idem_action_id('dispatch') ORDER BY n;
-- The key is the action's, whichever attempt sends it.
SELECT granted FROM idem_reserve('dispatch again', '{}', action_type => 'dispatch', attempt_id => :'one');
SELECT idem_dispatch(idem_action_id('dispatch again'), :'one') AS first_key \gset
SELECT idem_fail(idem_action_id('dispatch again'), :'one', 'refused', retryable => true, retry_after_seconds => 0);
SELECT granted, attempt FROM idem_reserve('dispatch again', '{}', action_type => 'dispatch', attempt_id => :'two');
SELECT idem_dispatch(idem_action_id('dispatch again'), :'two') = :'first_key' AS same_key;
SELECT idem_dispatch(idem_action_id('dispatch again'), :'one');
SELECT idem_dispatch(idem_action_id('dispatch again'), :'three');
-- Unless a new one was asked for and nothing is open.
SELECT idem_fail(idem_action_id('dispatch again'), :'two', 'refused', retryable => true, retry_after_seconds => 0, new_provider_key => true);
SELECT granted FROM idem_reserve('dispatch again', '{}', action_type => 'dispatch', attempt_id => :'three');
SELECT idem_dispatch(idem_action_id('dispatch again'), :'three') = :'first_key' AS same_key;

-- Not where the mark could be rolled back, or come too late.
SELECT granted FROM idem_reserve('dispatch where', '{}', action_type => 'dispatch', attempt_id => :'one', lease_seconds => 600);
BEGIN;
SELECT idem_dispatch(idem_action_id('dispatch where'), :'one');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT idem_dispatch(idem_action_id('dispatch where'), :'one');
ROLLBACK;
-- Several statements in one string are a transaction.
SELECT 1 AS one \; SELECT idem_dispatch(idem_action_id('dispatch where'), :'one');
SELECT idem_dispatch(idem_action_id('dispatch where'), :'one') \; SELECT 1 AS one;
DO $$ BEGIN PERFORM idem_dispatch(idem_action_id('dispatch where'), '11111111-1111-4111-8111-111111111111'); END $$;
DO $$ DECLARE k uuid; BEGIN k := idem_dispatch(idem_action_id('dispatch where'), '11111111-1111-4111-8111-111111111111'); END $$;
DO $$ DECLARE k uuid; BEGIN COMMIT; SELECT idem_dispatch(idem_action_id('dispatch where'), '11111111-1111-4111-8111-111111111111') INTO k; COMMIT; END $$;
CREATE FUNCTION dispatch_in_plpgsql(id uuid, token uuid) RETURNS uuid LANGUAGE plpgsql AS $$ BEGIN RETURN idem_dispatch(id, token); END $$;
CREATE FUNCTION dispatch_in_sql(id uuid, token uuid) RETURNS uuid LANGUAGE sql SECURITY DEFINER AS $$ SELECT idem_dispatch(id, token) $$;
CREATE FUNCTION dispatch_in_table(id uuid, token uuid) RETURNS TABLE (k uuid) LANGUAGE sql AS $$ SELECT 'f0000000-0000-4000-8000-000000000000'::uuid WHERE false; SELECT idem_dispatch(id, token) $$;
CREATE PROCEDURE dispatch_in_procedure(id uuid, token uuid) LANGUAGE plpgsql AS $$ BEGIN COMMIT; PERFORM idem_dispatch(id, token); END $$;
SELECT dispatch_in_plpgsql(idem_action_id('dispatch where'), :'one');
SELECT dispatch_in_sql(idem_action_id('dispatch where'), :'one');
SELECT * FROM dispatch_in_table(idem_action_id('dispatch where'), :'one');
CALL dispatch_in_procedure(idem_action_id('dispatch where'), :'one');
-- A trigger is a function, too.
CREATE TEMPORARY TABLE dispatch_log (k uuid);
CREATE FUNCTION dispatch_in_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.k := idem_dispatch(idem_action_id('dispatch where'), '11111111-1111-4111-8111-111111111111'); RETURN NEW; END $$;
CREATE TRIGGER dispatch_log BEFORE INSERT ON dispatch_log FOR EACH ROW EXECUTE FUNCTION dispatch_in_trigger();
INSERT INTO dispatch_log VALUES (NULL);
SELECT dispatched_at IS NULL AS unmarked FROM idem_action WHERE key = 'dispatch where';
-- Every other way to write the statement is as good as the plain one.
SELECT count(*) FROM idem_dispatch(idem_action_id('dispatch where'), :'one');
SELECT granted FROM unnest('{a,b,c,d,e,f}'::text[]) AS name,
    LATERAL idem_reserve('dispatch as ' || name, '{}', action_type => 'dispatch', attempt_id => :'one');
WITH marked AS MATERIALIZED (SELECT idem_dispatch(idem_action_id('dispatch as a'), :'one') AS k) SELECT count(k) FROM marked;
SELECT count(k) FROM (SELECT (SELECT idem_dispatch(idem_action_id('dispatch as b'), :'one')) AS k) AS sub;
PREPARE dispatch_prepared(uuid, uuid) AS SELECT idem_dispatch($1, $2) IS NOT NULL AS marked;
EXECUTE dispatch_prepared(idem_action_id('dispatch as c'), :'one');
CREATE TEMPORARY TABLE dispatch_kept (k uuid);
INSERT INTO dispatch_kept SELECT idem_dispatch(idem_action_id('dispatch as d'), :'one');
CREATE TEMPORARY TABLE dispatch_kept_as AS SELECT idem_dispatch(idem_action_id('dispatch as e'), :'one') AS k;
SELECT idem_dispatch(idem_action_id('dispatch as f'), :'one') IS NOT NULL AS marked ORDER BY 1 LIMIT 1;
SELECT count(dispatched_at) FROM idem_action WHERE key LIKE 'dispatch as _';

-- Lease over before the mark: the next one may execute. After it: unknown.
SELECT granted FROM idem_reserve('dispatch over', '{}', action_type => 'dispatch', attempt_id => :'one', lease_seconds => 0.5);
SELECT granted FROM idem_reserve('dispatch sent', '{}', action_type => 'dispatch', attempt_id => :'one', lease_seconds => 0.5);
SELECT idem_dispatch(idem_action_id('dispatch sent'), :'one') IS NOT NULL AS marked;
SELECT pg_sleep(0.52);
SELECT idem_dispatch(idem_action_id('dispatch over'), :'one');
SELECT decision, attempt FROM idem_reserve('dispatch over', '{}', action_type => 'dispatch', attempt_id => :'two');
SELECT idem_dispatch(idem_action_id('dispatch over'), :'one');
SELECT idem_dispatch(idem_action_id('dispatch over'), :'two') IS NOT NULL AS marked;
SELECT decision, attempt FROM idem_reserve('dispatch sent', '{}', action_type => 'dispatch', attempt_id => :'two');
-- Saying that it may have been sent is as good as the mark: no other attempt.
SELECT granted FROM idem_reserve('dispatch said', '{}', action_type => 'dispatch', attempt_id => :'one', lease_seconds => 0.5);
SELECT pg_sleep(0.52);
SELECT idem_sweep() IS NOT NULL AS swept;
SELECT idem_mark_unknown(idem_action_id('dispatch said'), :'one');
SELECT decision FROM idem_reserve('dispatch said', '{}', action_type => 'dispatch', attempt_id => :'two');
-- Committed without the mark: the commit stands, and that it was not marked is said and written down.
SELECT granted FROM idem_reserve('dispatch unmarked', '{}', action_type => 'dispatch', attempt_id => :'one');
SELECT idem_commit(idem_action_id('dispatch unmarked'), :'one', '{"ok": true}');
SELECT decision, response FROM idem_reserve('dispatch unmarked', '{}', action_type => 'dispatch');
SELECT event FROM idem_event WHERE action_id = idem_action_id('dispatch unmarked') ORDER BY n;
-- Also when it came late, to an attempt that another one followed: a discrepancy.
SELECT granted FROM idem_reserve('dispatch late', '{}', action_type => 'dispatch', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('dispatch late', '{}', action_type => 'dispatch', attempt_id => :'two');
SELECT idem_commit(idem_action_id('dispatch late'), :'one', on_lost => 'record');
SELECT idem_dispatch(idem_action_id('dispatch late'), :'two');
-- A type that asks for no mark takes one all the same.
SELECT provider_key AS shown_key FROM idem_reserve('dispatch free', '{}', attempt_id => :'one') \gset
SELECT idem_dispatch(idem_action_id('dispatch free'), :'one') = :'shown_key' AS same_key;
SELECT idem_dispatch(idem_action_id('dispatch free'), :'one');
SELECT idem_release(idem_action_id('dispatch free'), :'one');
-- Nothing to dispatch
SELECT idem_dispatch(idem_action_id('dispatch nothing'), :'one');
SELECT idem_dispatch(NULL, :'one');
SELECT idem_dispatch(idem_action_id('dispatch'), NULL);
SET default_transaction_read_only = on;
SELECT idem_dispatch(idem_action_id('dispatch free'), :'one');
RESET default_transaction_read_only;
DROP FUNCTION dispatch_in_plpgsql, dispatch_in_sql, dispatch_in_table;
DROP PROCEDURE dispatch_in_procedure;
