-- idem_status and idem_status_by_id: one row in any case, the same row, and nothing is written.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
SELECT * FROM idem_status('status nothing');
SELECT decision FROM idem_reserve('status started', '{"secret": 1}', 'acme', 'status', attempt_id => :'one', store_request => true);
SELECT state, action_type, attempt, lease_expires_at > clock_timestamp() AS leased, due_at, deadline_at, needs_review, discrepancy, response, response_state,
    created_at <= clock_timestamp() AS created, ended_at, expires_at FROM idem_status('status started', 'acme');
SELECT a = b AS same FROM idem_status('status started', 'acme') AS a, idem_status_by_id(idem_action_id('status started', 'acme')) AS b;
-- The tenant is part of the name.
SELECT state FROM idem_status('status started');
-- The lease is over and nobody came: started still, and the end tells.
SELECT decision FROM idem_reserve('status lapsed', '{}', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT state, lease_expires_at < clock_timestamp() AS over FROM idem_status('status lapsed');
-- unknown, with a reconciler at it
SELECT decision FROM idem_reserve('status unknown', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('status unknown'), :'one', 'timeout', 'req_1');
SELECT decision FROM idem_reserve('status unknown', '{}', attempt_id => :'two', can_reconcile => true);
SELECT state, attempt, deadline_at > clock_timestamp() AS deadline, needs_review, reason, external_request_id FROM idem_status('status unknown');
-- Past its deadline: judged at read time.
SELECT policy_version FROM idem_register_action_type('status late', 'reversible', resolve_deadline => '0 s');
SELECT decision FROM idem_reserve('status late', '{}', action_type => 'status late', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('status late'), :'one');
SELECT state, needs_review FROM idem_status('status late');
-- retryable, committed, failed
SELECT decision FROM idem_reserve('status retryable', '{}', attempt_id => :'one');
SELECT idem_fail(idem_action_id('status retryable'), :'one', 'refused', '{"code": 429}', true, 60);
SELECT state, due_at > clock_timestamp() AS later, error FROM idem_status('status retryable');
SELECT decision FROM idem_reserve('status committed', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('status committed'), :'one', '{"n": 1}', 're_1', 'req_1');
SELECT state, response, response_state, resource_id, external_request_id, ended_at IS NOT NULL AS ended, extract(day FROM expires_at - ended_at) AS days_kept FROM idem_status('status committed');
SELECT decision FROM idem_reserve('status failed', '{}', attempt_id => :'one');
SELECT idem_fail(idem_action_id('status failed'), :'one', 'refused', '{"code": 1}');
SELECT state, response, response_state, error FROM idem_status('status failed');
-- expired: judged at read time, and nothing of the content is shown.
SELECT policy_version FROM idem_register_action_type('status expired', 'reversible', ttl => '0 s');
SELECT decision FROM idem_reserve('status expired', '{}', action_type => 'status expired', attempt_id => :'one', lease_seconds => 0.01);
SELECT idem_commit(idem_action_id('status expired'), :'one', '{"n": 1}', 're_1', 'req_1');
SELECT state, response, response_state, resource_id, external_request_id, error, reason FROM idem_status('status expired');
SELECT pg_sleep(0.02);
CALL idem_sweep_all();
SELECT state, response, response_state, resource_id, external_request_id, error, reason FROM idem_status('status expired');
-- The token of an attempt is never shown, and reading needs neither a transaction id nor the right to write.
SELECT count(*) FROM pg_attribute WHERE attrelid = 'idem_action_status'::regclass AND attname LIKE '%attempt_id%';
BEGIN READ ONLY;
SELECT state FROM idem_status('status committed');
SELECT state FROM idem_status_by_id(idem_action_id('status committed'));
SELECT pg_current_xact_id_if_assigned() AS xid;
COMMIT;
-- Arguments
SELECT state FROM idem_status(NULL);
SELECT state FROM idem_status('');
SELECT state FROM idem_status('status started', NULL);
SELECT state FROM idem_status(repeat('k', 256));
SELECT state FROM idem_status_by_id(NULL);
SELECT state FROM idem_status_by_id('00000000-0000-0000-0000-000000000000');
