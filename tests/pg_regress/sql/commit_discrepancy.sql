-- A different resource for a committed action: discrepancy, stored and visible; the answer stays what it was.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
SELECT decision FROM idem_reserve('commit_discrepancy', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('commit_discrepancy'), :'one', '{"n": 1}', 're_1', 'req_1');
SELECT idem_commit(idem_action_id('commit_discrepancy'), :'one', '{"n": 2}', 're_2', 'req_2');
SELECT state, response, resource_id, external_request_id, discrepancy FROM idem_status('commit_discrepancy');
SELECT granted, decision, response, resource_id FROM idem_reserve('commit_discrepancy', '{}');
SELECT state, resource_id, discrepancy FROM idem_actions WHERE key = 'commit_discrepancy';
-- What was reported is on record.
SELECT event, resource_id, external_request_id, response FROM idem_event WHERE action_id = idem_action_id('commit_discrepancy');
-- The right resource, and none at all, contradict nothing.
SELECT idem_commit(idem_action_id('commit_discrepancy'), :'one', '{"n": 1}', 're_1');
SELECT idem_commit(idem_action_id('commit_discrepancy'), :'one');
-- Nothing to compare with: no discrepancy.
SELECT decision FROM idem_reserve('commit_discrepancy none', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('commit_discrepancy none'), :'one', '{"n": 1}');
SELECT idem_commit(idem_action_id('commit_discrepancy none'), :'one', '{"n": 2}', 're_2');
SELECT response, resource_id, discrepancy FROM idem_status('commit_discrepancy none');
-- A response too large to keep says nothing about the one that was committed.
SELECT decision FROM idem_reserve('commit_discrepancy large', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('commit_discrepancy large'), :'one', NULL, 're_1');
SELECT idem_commit(idem_action_id('commit_discrepancy large'), :'one', jsonb_build_object('a', repeat('x', 1100000)), 're_2');
SELECT response_state, resource_id, discrepancy FROM idem_status('commit_discrepancy large');
