-- idem_reject, idem_withdraw, idem_cancel: always recorded, and no later grant or dispatch passes.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
SELECT policy_version FROM idem_register_action_type('withdraw', 'reversible', requires_approval => true, distinct_approver => 'none');
SELECT decision FROM unnest('{proposed,refused,approved,refused approved,granted,failed,sent,unknown,retryable,committed}'::text[]) AS n, LATERAL idem_propose('withdraw ' || n, '{}', action_type => 'withdraw');
SELECT count(idem_approve(action_id, fingerprint)) FROM idem_proposals WHERE key LIKE 'withdraw %' AND key NOT IN ('withdraw proposed', 'withdraw refused');
SELECT n, granted FROM unnest('{granted,failed,sent,unknown,retryable,committed}'::text[]) AS n, LATERAL idem_reserve('withdraw ' || n, '{}', action_type => 'withdraw', attempt_id => :'one');
SELECT idem_dispatch(idem_action_id('withdraw sent'), :'one') IS NOT NULL AS sent;
SELECT idem_dispatch(idem_action_id('withdraw unknown'), :'one') IS NOT NULL AS sent;
SELECT idem_dispatch(idem_action_id('withdraw retryable'), :'one') IS NOT NULL AS sent;
SELECT idem_mark_unknown(idem_action_id('withdraw unknown'), :'one');
SELECT idem_fail(idem_action_id('withdraw retryable'), :'one', 'refused', retryable => true, retry_after_seconds => 0);
SELECT idem_commit(idem_action_id('withdraw committed'), :'one');
-- A person refuses a proposal, or an approved action.
SELECT idem_reject(idem_action_id('withdraw refused'), 'dora', 'too much');
SELECT idem_reject(idem_action_id('withdraw refused'), 'dora', 'too much');
SELECT idem_reject(idem_action_id('withdraw refused approved'));
SELECT idem_reject(idem_action_id('withdraw granted'));
SELECT idem_reject(idem_action_id('withdraw committed'));
SELECT event, name, note FROM idem_event WHERE action_id = idem_action_id('withdraw refused') ORDER BY n;
SELECT granted, decision FROM idem_reserve('withdraw refused', '{}', action_type => 'withdraw');
-- What can be stopped and what cannot
SELECT key, idem_withdraw(action_id, 'dora', 'changed my mind'), state FROM idem_action WHERE key IN ('withdraw proposed', 'withdraw approved', 'withdraw granted',
    'withdraw failed', 'withdraw sent', 'withdraw unknown', 'withdraw retryable', 'withdraw committed') ORDER BY key COLLATE "C";
SELECT key, state FROM idem_actions WHERE key LIKE 'withdraw %' ORDER BY key COLLATE "C";
SELECT key, event, name, note FROM idem_event JOIN idem_action USING (action_id) WHERE event = 'withdrawn' ORDER BY key COLLATE "C";
-- Withdrawn between reserve and dispatch: the gate is closed,
SELECT idem_dispatch(idem_action_id('withdraw granted'), :'one');
SELECT granted, decision FROM idem_reserve('withdraw granted', '{}', action_type => 'withdraw', attempt_id => :'one');
-- and what the attempt says afterwards leaves nothing that looks as if it could be tried again.
SELECT idem_fail(idem_action_id('withdraw failed'), :'one', 'not_sent', retryable => true);
SELECT idem_fail(idem_action_id('withdraw failed'), :'one', 'not_sent', retryable => true);
SELECT granted, decision FROM idem_reserve('withdraw failed', '{}', action_type => 'withdraw', attempt_id => :'two');
-- What was sent is found out, and not repeated.
SELECT idem_commit(idem_action_id('withdraw sent'), :'one', '{"ok": true}');
SELECT granted, decision FROM idem_reserve('withdraw unknown', '{}', action_type => 'withdraw', attempt_id => :'two', can_reconcile => true);
SELECT idem_approve(action_id, fingerprint) FROM idem_action WHERE key = 'withdraw unknown';
-- Again: the same, and recorded again.
SELECT idem_withdraw(idem_action_id('withdraw proposed')), idem_withdraw(idem_action_id('withdraw unknown'));
SELECT count(*) FROM idem_event WHERE action_id = idem_action_id('withdraw proposed') AND event = 'withdrawn';
-- A person can start it over: from the beginning.
SELECT idem_reopen(idem_action_id('withdraw proposed'), 'it is needed after all');
SELECT granted, decision FROM idem_reserve('withdraw proposed', '{}', action_type => 'withdraw', attempt_id => :'one');
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'withdraw proposed';
SELECT granted, decision FROM idem_reserve('withdraw proposed', '{}', action_type => 'withdraw', attempt_id => :'one');

-- Who asked for an action calls it off, approval or not.
SELECT policy_version FROM idem_register_action_type('withdraw marking', 'reversible', marks_dispatch => true);
SELECT decision FROM idem_propose('withdraw cancel 1', '{}', action_type => 'withdraw');
SELECT idem_cancel(idem_action_id('withdraw cancel 1'), 'the customer left');
SELECT granted, decision FROM idem_reserve('withdraw cancel 1', '{}', action_type => 'withdraw');
SELECT granted FROM idem_reserve('withdraw cancel 2', '{}', action_type => 'withdraw marking', attempt_id => :'one', lease_seconds => 0.5);
SELECT idem_cancel(idem_action_id('withdraw cancel 2'));
SELECT idem_dispatch(idem_action_id('withdraw cancel 2'), :'one');
SELECT granted FROM idem_reserve('withdraw cancel 3', '{}', attempt_id => :'one');
SELECT idem_cancel(idem_action_id('withdraw cancel 3'));
SELECT idem_commit(idem_action_id('withdraw cancel 3'), :'one');
SELECT key, event, note FROM idem_event JOIN idem_action USING (action_id) WHERE event = 'cancelled' AND key LIKE 'withdraw %' ORDER BY key COLLATE "C";
-- The dead attempt never passed the gate: the sweep ends the action.
SELECT pg_sleep(0.52);
SELECT idem_sweep() IS NOT NULL AS swept;
SELECT state FROM idem_status('withdraw cancel 2');

SELECT idem_cancel(idem_action_id('withdraw nothing'));
SELECT idem_withdraw(NULL);
SELECT idem_reject(NULL);
SELECT idem_cancel(NULL);
SELECT idem_cancel(idem_action_id('withdraw cancel 1'), repeat('n', 256));
SELECT idem_withdraw(idem_action_id('withdraw cancel 1'), repeat('n', 256));
SELECT idem_reject(idem_action_id('withdraw cancel 1'), note => repeat('n', 256));
