-- Past its retention: expired, judged at read time, and nothing granted until the tombstone is gone.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
SELECT policy_version FROM idem_register_action_type('reserve_expired', 'deduplicated_creation', ttl => '0 s');
SELECT decision FROM idem_reserve('reserve_expired', '{}', action_type => 'reserve_expired', attempt_id => :'one',
    lease_seconds => 0.01);
SELECT idem_commit(idem_action_id('reserve_expired'), :'one', '{"secret": 1}', 're_1', 'req_1');
SELECT decision FROM idem_reserve('reserve_expired failed', '{}', action_type => 'reserve_expired', attempt_id => :'one',
    lease_seconds => 0.01);
SELECT idem_fail(idem_action_id('reserve_expired failed'), :'one', 'refused', '{"secret": 1}');

-- No worker has been here.
SELECT granted, decision, state, attempt_id, fence, provider_key, response, resource_id, external_request_id, error
FROM idem_reserve('reserve_expired', '{}', action_type => 'reserve_expired', can_reconcile => true);
SELECT granted, decision, state, error FROM idem_reserve('reserve_expired failed', '{}', action_type => 'reserve_expired');
SELECT granted, decision FROM idem_reserve('reserve_expired', '{"other": 1}', action_type => 'reserve_expired');
BEGIN;
SELECT decision FROM idem_reserve('reserve_expired', '{}', action_type => 'reserve_expired');
SELECT pg_current_xact_id_if_assigned() AS xid;
COMMIT;
SELECT key, state FROM idem_action WHERE key LIKE 'reserve\_expired%' ORDER BY key;
SELECT key, state FROM idem_actions WHERE key LIKE 'reserve\_expired%' ORDER BY key;

-- The same once it was scrubbed.
SELECT pg_sleep(0.02);
CALL idem_sweep_all();
SELECT key, state FROM idem_action WHERE key LIKE 'reserve\_expired%' ORDER BY key;
SELECT granted, decision, state, attempt_id, fence, provider_key, response, resource_id, external_request_id, error
FROM idem_reserve('reserve_expired', '{}', action_type => 'reserve_expired', can_reconcile => true);
SELECT granted, decision, state FROM idem_reserve('reserve_expired failed', '{}', action_type => 'reserve_expired');
SELECT granted, decision FROM idem_reserve('reserve_expired', '{"other": 1}', action_type => 'reserve_expired');

-- Without a tombstone the key is free again: a new action, whose fence is higher all the same.
SELECT policy_version FROM idem_register_action_type('reserve_expired gone', 'deduplicated_creation', ttl => '0 s', tombstone_ttl => '0 s');
SELECT fence FROM idem_reserve('reserve_expired gone', '{}', action_type => 'reserve_expired gone', attempt_id => :'one',
    lease_seconds => 0.01) \gset
SELECT idem_commit(idem_action_id('reserve_expired gone'), :'one');
SELECT pg_sleep(0.02);
CALL idem_sweep_all();
CALL idem_sweep_all();
SELECT granted, decision, attempt, fence > :fence AS fence_rises
FROM idem_reserve('reserve_expired gone', '{"other": 1}', action_type => 'reserve_expired gone', attempt_id => :'two');

-- A call may lengthen the type's retention, never shorten it. It counts from the end.
SELECT policy_version FROM idem_register_action_type('reserve_expired day', 'deduplicated_creation', ttl => '1 day');
SELECT decision FROM idem_reserve('reserve_expired shorter', '{}', action_type => 'reserve_expired day', attempt_id => :'one', ttl_seconds => 1);
SELECT idem_commit(idem_action_id('reserve_expired shorter'), :'one');
SELECT decision FROM idem_reserve('reserve_expired longer', '{}', action_type => 'reserve_expired day', attempt_id => :'one', ttl_seconds => 864000);
SELECT idem_commit(idem_action_id('reserve_expired longer'), :'one');
SELECT decision FROM idem_reserve('reserve_expired default', '{}', attempt_id => :'one', ttl_seconds => 0);
SELECT idem_fail(idem_action_id('reserve_expired default'), :'one', 'not_sent');
SELECT key, extract(day FROM expires_at - ended_at) AS days_kept FROM idem_actions
WHERE key IN ('reserve_expired shorter', 'reserve_expired longer', 'reserve_expired default') ORDER BY key;
-- A later attempt's wish counts as well.
SELECT decision FROM idem_reserve('reserve_expired later', '{}', action_type => 'reserve_expired day', attempt_id => :'one');
SELECT idem_release(idem_action_id('reserve_expired later'), :'one');
SELECT decision FROM idem_reserve('reserve_expired later', '{}', action_type => 'reserve_expired day', attempt_id => :'two', ttl_seconds => 172800);
SELECT idem_commit(idem_action_id('reserve_expired later'), :'two');
SELECT extract(day FROM expires_at - ended_at) AS days_kept FROM idem_actions WHERE key = 'reserve_expired later';
