-- on_lost => 'record' keeps the result as evidence where it cannot be committed, and says superseded.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
SELECT policy_version FROM idem_register_action_type('commit_on_lost', 'idempotent_mutation');
-- Nothing was lost: as without.
SELECT decision FROM idem_reserve('commit_on_lost', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('commit_on_lost'), :'one', '{"n": 1}', 're_1', on_lost => 'record');
SELECT idem_commit(idem_action_id('commit_on_lost'), :'one', '{"n": 1}', 're_1', on_lost => 'record');
SELECT idem_commit(idem_action_id('commit_on_lost'), :'one', '{"n": 2}', 're_2', on_lost => 'record');

-- Started by a later attempt: kept, and a discrepancy that a person has to look at.
SELECT decision FROM idem_reserve('commit_on_lost started', '{}', action_type => 'commit_on_lost', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('commit_on_lost started', '{}', action_type => 'commit_on_lost', attempt_id => :'two');
SELECT idem_commit(idem_action_id('commit_on_lost started'), :'one', '{"n": 1}', 're_1', 'req_1');
SELECT idem_commit(idem_action_id('commit_on_lost started'), :'one', '{"n": 1}', 're_1', 'req_1', on_lost => 'error');
SELECT idem_commit(idem_action_id('commit_on_lost started'), :'one', '{"n": 1}', 're_1', 'req_1', on_lost => 'record');
SELECT state, attempt, response, resource_id, external_request_id, discrepancy FROM idem_status('commit_on_lost started');
SELECT event, resource_id, external_request_id, response FROM idem_event
WHERE action_id = idem_action_id('commit_on_lost started') AND resource_id IS NOT NULL;
-- The later attempt still owns it, and its answer, or that it has none, is the one that is replayed.
SELECT idem_commit(idem_action_id('commit_on_lost started'), :'two');
SELECT decision, response, response_state, resource_id, external_request_id
FROM idem_reserve('commit_on_lost started', '{}', action_type => 'commit_on_lost');

-- Committed by a later attempt.
SELECT decision FROM idem_reserve('commit_on_lost committed', '{}', action_type => 'commit_on_lost', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('commit_on_lost committed', '{}', action_type => 'commit_on_lost', attempt_id => :'two');
SELECT idem_commit(idem_action_id('commit_on_lost committed'), :'two', '{"n": 2}', 're_2', 'req_2');
SELECT idem_commit(idem_action_id('commit_on_lost committed'), :'one', '{"n": 1}', NULL, 'req_1', 'record');
SELECT idem_commit(idem_action_id('commit_on_lost committed'), :'one', '{"n": 1}', 're_2', 'req_1', 'record');
SELECT state, response, resource_id, external_request_id, discrepancy FROM idem_status('commit_on_lost committed');

-- Retryable, failed: reported as done after all.
SELECT decision FROM idem_reserve('commit_on_lost retryable', '{}', attempt_id => :'one');
SELECT idem_release(idem_action_id('commit_on_lost retryable'), :'one');
SELECT idem_commit(idem_action_id('commit_on_lost retryable'), :'one', '{"n": 1}', 're_1', on_lost => 'record');
SELECT state, response, discrepancy FROM idem_status('commit_on_lost retryable');
SELECT granted, decision FROM idem_reserve('commit_on_lost retryable', '{}');
SELECT decision FROM idem_reserve('commit_on_lost failed', '{}', attempt_id => :'one');
SELECT idem_fail(idem_action_id('commit_on_lost failed'), :'one', 'refused', '{"code": 1}');
SELECT idem_commit(idem_action_id('commit_on_lost failed'), :'one', '{"n": 1}', 're_1', on_lost => 'record');
SELECT state, response, error, discrepancy FROM idem_status('commit_on_lost failed');

-- Unknown with a live reconciler: evidence, which its finding cannot contradict.
SELECT policy_version FROM idem_register_action_type('commit_on_lost probe', 'reversible', settle_delay => '0 s',
    probe_interval => '0 s', probes_required => 1);
SELECT decision FROM idem_reserve('commit_on_lost unknown', '{}', action_type => 'commit_on_lost probe', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('commit_on_lost unknown', '{}', action_type => 'commit_on_lost probe', attempt_id => :'two', can_reconcile => true);
SELECT idem_commit(idem_action_id('commit_on_lost unknown'), :'one', '{"n": 1}', 're_1', on_lost => 'record');
SELECT state, response, discrepancy FROM idem_status('commit_on_lost unknown');
SELECT state FROM idem_resolve(idem_action_id('commit_on_lost unknown'), :'two', 'not_applied');
-- A stranger's result is nobody's.
SELECT idem_commit(idem_action_id('commit_on_lost started'), :'three', '{"n": 3}', on_lost => 'record');
