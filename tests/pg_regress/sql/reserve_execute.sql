-- Nothing is stored and the type needs no approval: execute. The first attempt owns the action.
\set one 11111111-1111-4111-8111-111111111111
SELECT granted, decision, action_id, attempt_id = :'one' AS own_token, attempt, state
FROM idem_reserve('reserve_execute', '{"amount": 100}', attempt_id => :'one');
-- What there is not yet is NULL.
SELECT retry_after_seconds, response, response_state, resource_id, external_request_id, error
FROM idem_reserve('reserve_execute nulls', '{"amount": 100}');

-- The token of a caller who brings none is a random uuid; fence and provider_key come with the grant.
SELECT substr(a.attempt_id::text, 15, 1) AS version, a.attempt_id <> b.attempt_id AS distinct_tokens,
    a.fence > 0 AND a.fence < 2::numeric ^ 53 AS fence_fits_double,
    a.fence <= extract(epoch FROM clock_timestamp()) * 1000000 AS fence_not_ahead_of_clock,
    a.provider_key IS NOT NULL AS provider_key
FROM idem_reserve('reserve_execute token a', '{}') AS a, idem_reserve('reserve_execute token b', '{}') AS b;

-- The lease is what was asked for, else the type's: 60 s for a name nobody registered.
SELECT lease_expires_at > clock_timestamp() + interval '4 s' AND lease_expires_at <= clock_timestamp() + interval '5 s' AS five
FROM idem_reserve('reserve_execute lease 5', '{}', lease_seconds => 5);
SELECT lease_expires_at > clock_timestamp() + interval '55 s' AND lease_expires_at <= clock_timestamp() + interval '60 s' AS sixty
FROM idem_reserve('reserve_execute lease default', '{}');
-- Any positive length will do.
SELECT granted, lease_expires_at <= clock_timestamp() + interval '1 us' AS over
FROM idem_reserve('reserve_execute lease tiny', '{}', lease_seconds => 0.000001);

-- What was given is kept; the request itself only where that was asked for.
SELECT granted FROM idem_reserve('reserve_execute kept', '{"secret": 1}', 'acme', 'mail', 'user:7', 'order 4821',
    worker => 'w', workflow_id => 'wf', session_id => 's', payload_version => 'v3');
SELECT tenant, key, action_type, actor, target, state, attempt, worker, workflow_id, session_id, payload_version,
    ended_at, expires_at
FROM idem_actions WHERE action_id = idem_action_id('reserve_execute kept', 'acme');
SELECT granted FROM idem_reserve('reserve_execute stored', '{"secret": 1}', store_request => true);
SELECT key, request FROM idem_action
WHERE action_id IN (idem_action_id('reserve_execute kept', 'acme'), idem_action_id('reserve_execute stored'))
ORDER BY key;

-- A first attempt costs no row anywhere else.
SELECT (SELECT count(*) FROM idem_open AS o WHERE o.action_id = a.action_id) AS open,
    (SELECT count(*) FROM idem_attempt AS t WHERE t.action_id = a.action_id) AS attempts,
    (SELECT count(*) FROM idem_event AS e WHERE e.action_id = a.action_id) AS events
FROM idem_action AS a WHERE a.action_id = idem_action_id('reserve_execute');

-- Tenant and key are not glued: these are two actions.
SELECT a.granted, b.granted, a.action_id <> b.action_id AS distinct_actions
FROM idem_reserve('b|reserve_execute', '{}', 'a') AS a, idem_reserve('reserve_execute', '{}', 'a|b') AS b;
-- The same key under another tenant is another action, and its answer stays its own.
SELECT granted, decision FROM idem_reserve('reserve_execute', '{"amount": 999}', 'other');
-- No request at all is a request, too, and equal to itself only.
SELECT decision FROM idem_reserve('reserve_execute none');
SELECT decision FROM idem_reserve('reserve_execute none');
SELECT decision FROM idem_reserve('reserve_execute none', '{}');
-- NULL means the default except for key, tenant and action_type.
SELECT granted, decision FROM idem_reserve('reserve_execute defaults', '{}', actor => NULL, target => NULL,
    fingerprint => NULL, attempt_id => NULL, lease_seconds => NULL, ttl_seconds => NULL, wait_seconds => NULL,
    can_reconcile => NULL, worker => NULL, policy_version => NULL, store_request => NULL);
