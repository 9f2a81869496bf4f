-- idem_release: gives up before the effect. Retryable at once, and not counted.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
SELECT decision, provider_key FROM idem_reserve('release', '{}', attempt_id => :'one') \gset
SELECT idem_release(idem_action_id('release'), :'one');
SELECT state, attempt, lease_expires_at, due_at <= clock_timestamp() AS due FROM idem_status('release');
-- Again: the same answer.
SELECT idem_release(idem_action_id('release'), :'one');
SELECT attempt, outcome FROM idem_attempts WHERE action_id = idem_action_id('release') ORDER BY n;
SELECT granted, decision, attempt, provider_key = :'provider_key' AS same_provider_key FROM idem_reserve('release', '{}', attempt_id => :'two');
SELECT idem_release(idem_action_id('release'), :'one');
SELECT idem_release(idem_action_id('release'), :'three');
SELECT idem_release(idem_action_id('release nothing'), :'one');
SELECT idem_release(NULL, :'one');
SELECT idem_release(idem_action_id('release'), NULL);
-- The lease is over and nobody took over.
SELECT decision FROM idem_reserve('release lapsed', '{}', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT idem_release(idem_action_id('release lapsed'), :'one');
-- Not counted, however often.
SELECT policy_version FROM idem_register_action_type('release', 'reversible', max_attempts => 1);
SELECT name, decision FROM unnest('{a,b,c}'::text[]) AS name,
    LATERAL idem_reserve('release ' || name, '{}', action_type => 'release', attempt_id => :'one');
SELECT idem_release(idem_action_id('release a'), :'one');
SELECT decision, attempt FROM idem_reserve('release a', '{}', action_type => 'release', attempt_id => :'two');
SELECT idem_release(idem_action_id('release a'), :'two');
SELECT decision, attempt FROM idem_reserve('release a', '{}', action_type => 'release', attempt_id => :'three');
-- From started only
SELECT idem_mark_unknown(idem_action_id('release b'), :'one');
SELECT idem_release(idem_action_id('release b'), :'one');
SELECT idem_commit(idem_action_id('release c'), :'one');
SELECT idem_release(idem_action_id('release c'), :'one');
SELECT decision FROM idem_reserve('release failed', '{}', attempt_id => :'one');
SELECT idem_fail(idem_action_id('release failed'), :'one', 'refused');
SELECT idem_release(idem_action_id('release failed'), :'one');
SELECT key, state FROM idem_actions WHERE key IN ('release b', 'release c', 'release failed') ORDER BY key;
-- A reconciling attempt has nothing to release.
SELECT decision FROM idem_reserve('release b', '{}', action_type => 'release', attempt_id => :'two', can_reconcile => true);
SELECT idem_release(idem_action_id('release b'), :'two');
