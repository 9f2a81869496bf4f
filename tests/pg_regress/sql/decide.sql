-- A person's way out: escalate, decide, reopen.
\set VERBOSITY sqlstate
\set one '11111111-1111-4111-8111-111111111111'
\set two '22222222-2222-4222-8222-222222222222'
\set three '33333333-3333-4333-8333-333333333333'

-- Escalated, an unknown action is nobody's but a person's.
SELECT decision FROM idem_reserve('decide applied', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('decide applied'), :'one');
SELECT idem_escalate(idem_action_id('decide applied'), NULL);
SELECT idem_escalate(idem_action_id('decide applied'), 'provider search is incomplete');
SELECT idem_escalate(idem_action_id('decide applied'), 'again');
SELECT granted, decision FROM idem_reserve('decide applied', can_reconcile => true);
SELECT needs_review FROM idem_unresolved WHERE key = 'decide applied';

-- Applied: committed, and replayed.
SELECT idem_decide(idem_action_id('decide applied'), 'perhaps', 'note');
SELECT idem_decide(idem_action_id('decide applied'), 'applied', NULL);
SELECT idem_decide(idem_action_id('decide applied'), 'applied', 'found by hand', '{"id": 1}', 're_1');
SELECT decision, response, resource_id FROM idem_reserve('decide applied');
SELECT event, note FROM idem_event WHERE action_id = idem_action_id('decide applied') ORDER BY n;

-- Not applied: failed; what was stored as its answer goes.
SELECT idem_decide(idem_action_id('decide applied'), 'not_applied', 'it was another order''s');
SELECT decision, response, response_state, resource_id FROM idem_reserve('decide applied');
SELECT state, response, resource_id FROM idem_status('decide applied');

-- Reopened: another attempt, whose commit brings no old answer back.
SELECT idem_reopen(idem_action_id('decide applied'), 'try again');
SELECT decision, attempt FROM idem_reserve('decide applied', attempt_id => :'two');
SELECT idem_reopen(idem_action_id('decide applied'), 'not now');
SELECT idem_commit(idem_action_id('decide applied'), :'two');
SELECT decision, response, response_state, resource_id FROM idem_reserve('decide applied');

-- A discrepancy blocks every grant until a person decides.
SELECT decision FROM idem_reserve('decide discrepancy', attempt_id => :'one');
SELECT idem_fail(idem_action_id('decide discrepancy'), :'one', 'refused');
SELECT idem_add_evidence(idem_action_id('decide discrepancy'), :'one', 'applied', resource_id => 're_2');
SELECT idem_reopen(idem_action_id('decide discrepancy'), 'blocked');
SELECT idem_decide(idem_action_id('decide discrepancy'), 'retry', 'the evidence was wrong');
SELECT decision, attempt FROM idem_reserve('decide discrepancy', attempt_id => :'two');
SELECT discrepancy FROM idem_actions WHERE key = 'decide discrepancy';

-- Retry of a running action takes it from its owner.
SELECT idem_decide(idem_action_id('decide discrepancy'), 'retry', 'its worker is gone');
SELECT decision, attempt FROM idem_reserve('decide discrepancy', attempt_id => :'three');
SELECT idem_commit(idem_action_id('decide discrepancy'), :'two');
SELECT idem_commit(idem_action_id('decide discrepancy'), :'three');

SELECT idem_decide(idem_action_id('decide nothing'), 'applied', 'note');
SELECT idem_escalate(idem_action_id('decide discrepancy'), 'it is committed');
