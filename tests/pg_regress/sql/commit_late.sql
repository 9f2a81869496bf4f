-- A late answer is still an answer: idem_commit from unknown, by any attempt, while no reconciler is alive.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
SELECT policy_version FROM idem_register_action_type('commit_late', 'idempotent_mutation');
-- By the current attempt, after it said unknown,
SELECT decision FROM idem_reserve('commit_late marked', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('commit_late marked'), :'one', 'timeout', 'req_1');
SELECT idem_commit(idem_action_id('commit_late marked'), :'one', '{"n": 1}', 're_1');
SELECT idem_commit(idem_action_id('commit_late marked'), :'one', '{"n": 1}', 're_1');
SELECT state, response, resource_id, external_request_id FROM idem_status('commit_late marked');
-- or after its lease was found over.
SELECT decision FROM idem_reserve('commit_late lapsed', '{}', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('commit_late lapsed', '{}');
SELECT idem_commit(idem_action_id('commit_late lapsed'), :'one', '{"n": 1}');
SELECT decision, response FROM idem_reserve('commit_late lapsed', '{}');
-- It is off the queues, and on record.
SELECT count(*) FROM idem_open WHERE action_id = idem_action_id('commit_late lapsed') AND queue <> 'expiry';
SELECT count(*) > 0 AS noted FROM idem_event WHERE action_id = idem_action_id('commit_late lapsed');

-- By an earlier attempt.
SELECT decision FROM idem_reserve('commit_late earlier', '{}', action_type => 'commit_late', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision, attempt FROM idem_reserve('commit_late earlier', '{}', action_type => 'commit_late', attempt_id => :'two');
-- Not while the later one runs.
SELECT idem_commit(idem_action_id('commit_late earlier'), :'one', '{"n": 1}', 're_1');
SELECT idem_mark_unknown(idem_action_id('commit_late earlier'), :'two');
SELECT idem_commit(idem_action_id('commit_late earlier'), :'one', '{"n": 1}', 're_1');
SELECT idem_commit(idem_action_id('commit_late earlier'), :'one', '{"n": 1}', 're_1');
SELECT state, response, resource_id FROM idem_status('commit_late earlier');
-- The later one reports another resource: two effects.
SELECT idem_commit(idem_action_id('commit_late earlier'), :'two', '{"n": 2}', 're_2');
SELECT state, response, resource_id, discrepancy FROM idem_status('commit_late earlier');
SELECT decision, response FROM idem_reserve('commit_late earlier', '{}', action_type => 'commit_late');

-- A reconciler is alive: it took over, and the attempt has lost the action,
SELECT decision FROM idem_reserve('commit_late reconciled', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('commit_late reconciled'), :'one');
SELECT decision FROM idem_reserve('commit_late reconciled', '{}', attempt_id => :'two', can_reconcile => true);
SELECT idem_commit(idem_action_id('commit_late reconciled'), :'one', '{"n": 1}', 're_1');
SELECT state FROM idem_status('commit_late reconciled');
-- until the reconciler's lease is over.
SELECT decision FROM idem_reserve('commit_late dead reconciler', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('commit_late dead reconciler'), :'one');
SELECT decision FROM idem_reserve('commit_late dead reconciler', '{}', attempt_id => :'two', can_reconcile => true, lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT idem_commit(idem_action_id('commit_late dead reconciler'), :'one', '{"n": 1}', 're_1');
SELECT decision, response, resource_id FROM idem_reserve('commit_late dead reconciler', '{}');
-- The reconciler comes too late with the same, and with something else.
SELECT state FROM idem_resolve(idem_action_id('commit_late dead reconciler'), :'two', 'applied', NULL, 're_1');
SELECT state FROM idem_resolve(idem_action_id('commit_late dead reconciler'), :'two', 'not_applied');
SELECT state, response, resource_id FROM idem_status('commit_late dead reconciler');
-- A reconciling attempt does not commit; it resolves.
SELECT decision FROM idem_reserve('commit_late resolver', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('commit_late resolver'), :'one');
SELECT decision FROM idem_reserve('commit_late resolver', '{}', attempt_id => :'two', can_reconcile => true);
SELECT idem_commit(idem_action_id('commit_late resolver'), :'two');
SELECT state FROM idem_status('commit_late resolver');

-- Past the deadline, escalated, with positive evidence: still an answer.
SELECT policy_version FROM idem_register_action_type('commit_late deadline', 'reversible', resolve_deadline => '0 s');
SELECT decision FROM idem_reserve('commit_late deadline', '{}', action_type => 'commit_late deadline', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('commit_late deadline'), :'one');
SELECT decision FROM idem_reserve('commit_late deadline', '{}', action_type => 'commit_late deadline');
SELECT idem_add_evidence(idem_action_id('commit_late deadline'), :'one', 'applied');
SELECT idem_commit(idem_action_id('commit_late deadline'), :'one', '{"n": 1}');
SELECT decision, response FROM idem_reserve('commit_late deadline', '{}', action_type => 'commit_late deadline');
SELECT needs_review, discrepancy FROM idem_status('commit_late deadline');
