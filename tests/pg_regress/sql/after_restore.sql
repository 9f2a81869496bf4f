-- idem_after_restore: what was open becomes unknown, what was ended stays. Rolled back, for it concerns every action.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
BEGIN;
SELECT count(*) FROM idem_register_action_type('restore free', 'idempotent_mutation');
SELECT count(*) FROM idem_register_action_type('restore brief', 'deduplicated_creation', settle_delay => '0', probes_required => 1, lease => '0.001 s');
SELECT count(*) FROM idem_register_action_type('restore asks', 'reversible', requires_approval => true);
SELECT turned_unknown >= 0 AS turned FROM idem_after_restore('what other tests have left');
SELECT key, decision FROM (VALUES ('restore started', 'default'), ('restore lost', 'default'), ('restore again', 'default'), ('restore done', 'default'),
    ('restore failed', 'default'), ('restore free', 'restore free'), ('restore asks', 'restore asks')) AS v(key, type),
    idem_reserve(v.key, '{}', action_type => v.type, attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('restore lost'), :'one'), idem_release(idem_action_id('restore again'), :'one'),
    idem_commit(idem_action_id('restore done'), :'one', '{"n": 1}'), idem_fail(idem_action_id('restore failed'), :'one', 'refused');
SELECT installation_id AS before FROM idem_installation \gset

SELECT turned_unknown >= 5 AS turned FROM idem_after_restore('failover of 3 May');
SELECT key, state, attempt, lease_expires_at FROM idem_actions WHERE key LIKE 'restore%' ORDER BY key;
SELECT key, needs_review, deadline_at > clock_timestamp() AS deadline, due_at <= clock_timestamp() AS due FROM idem_unresolved WHERE key LIKE 'restore%' ORDER BY key;
SELECT key, event, note, role = session_user AS role FROM idem_event JOIN idem_action USING (action_id) WHERE note = 'failover of 3 May' AND key LIKE 'restore%' ORDER BY key;
SELECT key, outcome FROM idem_attempt JOIN idem_action USING (action_id) WHERE key LIKE 'restore%' ORDER BY key, n;
SELECT installation_id = :'before' AS same FROM idem_installation;

-- Done is done, failed is failed.
SELECT decision, response FROM idem_reserve('restore done', '{}');
SELECT decision FROM idem_reserve('restore failed', '{}');
-- Nothing else is tried again before somebody has looked, but for what may repeat.
SELECT key, granted, decision FROM unnest('{restore again,restore lost,restore started}'::text[]) AS key, idem_reserve(key, '{}') ORDER BY key;
SELECT granted, decision, attempt FROM idem_reserve('restore free', '{}', action_type => 'restore free', attempt_id => :'two');
SELECT idem_fail(idem_action_id('restore free'), :'two', 'not_sent', retryable => true, retry_after_seconds => 0) AS what_was_before_is_open_still;
SELECT granted, decision FROM idem_reserve('restore asks', '{}', action_type => 'restore asks');
-- An attempt of before owns nothing; what it saw is evidence.
SAVEPOINT s; SELECT idem_commit(idem_action_id('restore started'), :'one'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_fail(idem_action_id('restore started'), :'one', 'not_sent'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_release(idem_action_id('restore started'), :'one'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_renew(idem_action_id('restore started'), :'one'); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_mark_unknown(idem_action_id('restore started'), :'one'); ROLLBACK TO s;
SAVEPOINT s; SELECT decision FROM idem_reserve('restore free', '{}', action_type => 'restore free', attempt_id => :'one'); ROLLBACK TO s;
SELECT idem_commit(idem_action_id('restore started'), :'one', '{"n": 2}', 're_2', on_lost => 'record');
SELECT idem_add_evidence(idem_action_id('restore lost'), :'one', 'applied');
SELECT key, positive_evidence FROM idem_unresolved WHERE positive_evidence AND key LIKE 'restore%' ORDER BY key;
-- It is reconciled like any other.
SELECT decision FROM idem_reserve('restore started', '{}', attempt_id => :'three', can_reconcile => true);
SELECT state FROM idem_resolve(idem_action_id('restore started'), :'three', 'applied', '{"n": 2}', 're_2');
SELECT decision, response FROM idem_reserve('restore started', '{}');

-- Disproved, it goes on as before.
SELECT decision FROM idem_reserve('restore brief', '{}', action_type => 'restore brief', attempt_id => :'one');
SELECT turned_unknown > 0 AS turned FROM idem_after_restore('again');
SELECT pg_sleep(0.002);
SELECT decision FROM idem_reserve('restore brief', '{}', action_type => 'restore brief', attempt_id => :'two', can_reconcile => true);
SELECT state FROM idem_resolve(idem_action_id('restore brief'), :'two', 'not_applied');
SELECT granted, decision, attempt FROM idem_reserve('restore brief', '{}', action_type => 'restore brief', attempt_id => :'three');
SELECT idem_commit(idem_action_id('restore brief'), :'three');

-- A copy gets an identity of its own, and with it other provider keys.
SELECT provider_key AS before_copy FROM idem_reserve('restore copy', '{}', action_type => 'restore free') \gset
SELECT turned_unknown > 0 AS turned FROM idem_after_restore('a copy for tests', as_copy => true);
SELECT count(*), count(*) FILTER (WHERE installation_id = :'before') AS old FROM idem_installation;
SELECT decision, provider_key = :'before_copy' AS same_key FROM idem_reserve('restore copy', '{}', action_type => 'restore free');

-- Arguments
SAVEPOINT s; SELECT idem_after_restore(NULL); ROLLBACK TO s;
SAVEPOINT s; SELECT idem_after_restore(repeat('x', 256)); ROLLBACK TO s;
ROLLBACK;
SELECT installation_id = :'before' AS same FROM idem_installation;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT idem_after_restore('too old a snapshot');
ROLLBACK;
BEGIN READ ONLY;
SELECT idem_after_restore('nothing can be written');
ROLLBACK;
