-- While an outcome is open, a later attempt's definite failure leads to unknown, never to failed or retryable.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
\set four 44444444-4444-4444-8444-444444444444
SELECT policy_version FROM idem_register_action_type('fail_sticky', 'idempotent_mutation');
-- Attempt 1 lapsed or was marked, attempt 2 fails for certain.
SELECT name, decision FROM unnest('{final,again,not sent,released}'::text[]) AS name,
    LATERAL idem_reserve('fail_sticky ' || name, '{}', action_type => 'fail_sticky', attempt_id => :'one', lease_seconds => 0.01);
SELECT idem_mark_unknown(idem_action_id('fail_sticky again'), :'one');
SELECT pg_sleep(0.02);
SELECT name, decision, attempt FROM unnest('{final,again,not sent,released}'::text[]) AS name,
    LATERAL idem_reserve('fail_sticky ' || name, '{}', action_type => 'fail_sticky', attempt_id => :'two');
SELECT idem_fail(idem_action_id('fail_sticky final'), :'two', 'refused', '{"code": 1}', retry_after_seconds => 0);
SELECT idem_fail(idem_action_id('fail_sticky again'), :'two', 'refused', '{"code": 1}', true, 0);
SELECT idem_fail(idem_action_id('fail_sticky not sent'), :'two', 'not_sent', '{"code": 1}', true, 0, true);
SELECT idem_release(idem_action_id('fail_sticky released'), :'two');
-- Again: the same answer.
SELECT idem_fail(idem_action_id('fail_sticky final'), :'two', 'refused', '{"code": 1}', retry_after_seconds => 0);
SELECT idem_release(idem_action_id('fail_sticky released'), :'two');
SELECT key, state FROM idem_actions WHERE key LIKE 'fail\_sticky %' ORDER BY key;
-- The provider's key stays: an outcome is open under it.
SELECT provider_key FROM idem_reserve('fail_sticky key', '{}', action_type => 'fail_sticky', attempt_id => :'one', lease_seconds => 0.01) \gset
SELECT pg_sleep(0.02);
SELECT decision, provider_key = :'provider_key' AS same_key
FROM idem_reserve('fail_sticky key', '{}', action_type => 'fail_sticky', attempt_id => :'two');
SELECT idem_fail(idem_action_id('fail_sticky key'), :'two', 'not_sent', NULL, true, 0, new_provider_key => true);
SELECT decision, provider_key = :'provider_key' AS same_key
FROM idem_reserve('fail_sticky key', '{}', action_type => 'fail_sticky', attempt_id => :'three');
-- The next attempt may repeat, and its failure is sticky as well.
SELECT decision, attempt FROM idem_reserve('fail_sticky final', '{}', action_type => 'fail_sticky', attempt_id => :'three');
SELECT idem_fail(idem_action_id('fail_sticky final'), :'three', 'refused');
-- Attempt 1's success closes it.
SELECT idem_commit(idem_action_id('fail_sticky final'), :'one', '{"n": 1}');
SELECT decision, response FROM idem_reserve('fail_sticky final', '{}', action_type => 'fail_sticky');

-- Closed by a disproof, it sticks no longer.
SELECT policy_version FROM idem_register_action_type('fail_sticky probe', 'reversible', settle_delay => '0 s',
    probe_interval => '0 s', probes_required => 1);
SELECT decision FROM idem_reserve('fail_sticky disproved', '{}', action_type => 'fail_sticky probe', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('fail_sticky disproved', '{}', action_type => 'fail_sticky probe', attempt_id => :'two', can_reconcile => true);
SELECT state FROM idem_resolve(idem_action_id('fail_sticky disproved'), :'two', 'not_applied');
SELECT decision, attempt FROM idem_reserve('fail_sticky disproved', '{}', action_type => 'fail_sticky probe', attempt_id => :'three');
SELECT idem_fail(idem_action_id('fail_sticky disproved'), :'three', 'refused');
-- Nothing is open after a release or a definite failure.
SELECT decision FROM idem_reserve('fail_sticky clean', '{}', action_type => 'fail_sticky', attempt_id => :'one');
SELECT idem_release(idem_action_id('fail_sticky clean'), :'one');
SELECT decision FROM idem_reserve('fail_sticky clean', '{}', action_type => 'fail_sticky', attempt_id => :'two');
SELECT idem_fail(idem_action_id('fail_sticky clean'), :'two', 'refused', NULL, true, 0);
SELECT decision FROM idem_reserve('fail_sticky clean', '{}', action_type => 'fail_sticky', attempt_id => :'three');
SELECT idem_fail(idem_action_id('fail_sticky clean'), :'three', 'refused');
-- By the last attempt, from unknown: only its own outcome is closed.
SELECT decision FROM idem_reserve('fail_sticky own', '{}', action_type => 'fail_sticky', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('fail_sticky own'), :'one');
SELECT decision FROM idem_reserve('fail_sticky own', '{}', action_type => 'fail_sticky', attempt_id => :'two');
SELECT idem_mark_unknown(idem_action_id('fail_sticky own'), :'two');
SELECT idem_fail(idem_action_id('fail_sticky own'), :'two', 'refused', retry_after_seconds => 60);
SELECT idem_fail(idem_action_id('fail_sticky own'), :'one', 'refused');
SELECT state FROM idem_status('fail_sticky own');
-- Whoever repeats it waits first, as after any failure.
SELECT decision, retry_after_seconds > 0 AS wait FROM idem_reserve('fail_sticky own', '{}', action_type => 'fail_sticky', attempt_id => :'three');
