-- idem_resolve: applied -> committed, with what was found; partially_applied -> committed, needs compensation.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
SELECT decision FROM idem_reserve('resolve_applied', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('resolve_applied'), :'one', 'timeout', 'req_1');
SELECT decision FROM idem_reserve('resolve_applied', '{}', attempt_id => :'two', can_reconcile => true);
SELECT state, next_probe_at FROM idem_resolve(idem_action_id('resolve_applied'), :'two', 'applied', '{"refund": "re_1"}', 're_1',
    evidence => '{"looked": "at /refunds"}');
SELECT granted, decision, attempt, response, response_state, resource_id, external_request_id, error FROM idem_reserve('resolve_applied', '{}');
-- Again: the same answer.
SELECT state, next_probe_at FROM idem_resolve(idem_action_id('resolve_applied'), :'two', 'applied', '{"refund": "re_1"}', 're_1');
-- Another resource: a discrepancy, and the answer stays.
SELECT state FROM idem_resolve(idem_action_id('resolve_applied'), :'two', 'applied', '{"refund": "re_2"}', 're_2', 'req_2');
SELECT state, response, resource_id, external_request_id, discrepancy FROM idem_status('resolve_applied');
-- A contrary finding comes too late.
SELECT state FROM idem_resolve(idem_action_id('resolve_applied'), :'two', 'not_applied');
SELECT attempt, reconciling, outcome FROM idem_attempts WHERE action_id = idem_action_id('resolve_applied') ORDER BY n;
SELECT finding, response, resource_id, evidence FROM idem_event WHERE action_id = idem_action_id('resolve_applied') AND evidence IS NOT NULL;
SELECT count(*) FROM idem_open WHERE action_id = idem_action_id('resolve_applied') AND queue <> 'expiry';
SELECT state, needs_compensation FROM idem_actions WHERE key = 'resolve_applied';

SELECT decision FROM idem_reserve('resolve_applied partly', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('resolve_applied partly'), :'one');
SELECT decision FROM idem_reserve('resolve_applied partly', '{}', attempt_id => :'two', can_reconcile => true);
SELECT state, next_probe_at FROM idem_resolve(idem_action_id('resolve_applied partly'), :'two', 'partially_applied', NULL, 're_1');
SELECT state, needs_compensation, resource_id FROM idem_actions WHERE key = 'resolve_applied partly';
SELECT granted, decision, response_state FROM idem_reserve('resolve_applied partly', '{}');

-- Only the reconciling attempt resolves: not the attempt itself, not an earlier reconciler, not a stranger.
SELECT decision FROM idem_reserve('resolve_applied wrong', '{}', attempt_id => :'one');
SELECT state FROM idem_resolve(idem_action_id('resolve_applied wrong'), :'one', 'applied');
SELECT idem_mark_unknown(idem_action_id('resolve_applied wrong'), :'one');
SELECT state FROM idem_resolve(idem_action_id('resolve_applied wrong'), :'one', 'applied');
SELECT decision FROM idem_reserve('resolve_applied wrong', '{}', attempt_id => :'two', can_reconcile => true, lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('resolve_applied wrong', '{}', attempt_id => :'three', can_reconcile => true);
SELECT state FROM idem_resolve(idem_action_id('resolve_applied wrong'), :'two', 'applied');
SELECT state FROM idem_resolve(idem_action_id('resolve_applied wrong'), '44444444-4444-4444-8444-444444444444', 'applied');
SELECT state FROM idem_resolve(idem_action_id('resolve_applied nothing'), :'two', 'applied');
SELECT state FROM idem_status('resolve_applied wrong');
-- And it may do nothing else but renew and add evidence.
SELECT idem_commit(idem_action_id('resolve_applied wrong'), :'three');
SELECT idem_mark_unknown(idem_action_id('resolve_applied wrong'), :'three');
SELECT idem_fail(idem_action_id('resolve_applied wrong'), :'three', 'refused');
SELECT idem_release(idem_action_id('resolve_applied wrong'), :'three');
SELECT idem_add_evidence(idem_action_id('resolve_applied wrong'), :'three', 'inconclusive');
SELECT idem_renew(idem_action_id('resolve_applied wrong'), :'three') IS NOT NULL AS renewed;
-- Arguments
SELECT state FROM idem_resolve(NULL, :'three', 'applied');
SELECT state FROM idem_resolve(idem_action_id('resolve_applied wrong'), NULL, 'applied');
SELECT state FROM idem_resolve(idem_action_id('resolve_applied wrong'), :'three', NULL);
SELECT state FROM idem_resolve(idem_action_id('resolve_applied wrong'), :'three', 'found');
SELECT state FROM idem_resolve(idem_action_id('resolve_applied wrong'), :'three', 'applied', NULL, repeat('r', 256));
SELECT state FROM idem_resolve(idem_action_id('resolve_applied wrong'), :'three', 'inconclusive', next_probe_seconds => -1);
SELECT state FROM idem_resolve(idem_action_id('resolve_applied wrong'), :'three', 'inconclusive', next_probe_seconds => 'NaN');
SELECT state FROM idem_status('resolve_applied wrong');
SELECT state FROM idem_resolve(idem_action_id('resolve_applied wrong'), :'three', 'applied');
