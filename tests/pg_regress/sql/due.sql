-- Pull workers: what may start now and has its request stored is granted to whoever asks.
\set VERBOSITY sqlstate
SELECT name FROM idem_register_action_type('due.create', 'deduplicated_creation', max_attempts => 2);
SELECT name FROM idem_register_action_type('due.set', 'idempotent_mutation');
SELECT count(*) FROM idem_due(tenant => 'due');

-- Retryable now, retryable later, without a request, unknown, dead and repeatable, dead and not.
CREATE TEMP TABLE reserved AS
SELECT k, r.action_id, r.attempt_id, r.provider_key FROM (VALUES
    ('now', 'due.create', true, 60), ('later', 'due.create', true, 60), ('no request', 'due.create', false, 60),
    ('unknown', 'due.create', true, 60), ('repeatable', 'due.set', true, 0.001), ('dead', 'due.create', true, 0.001)
    ) AS v(k, t, store, l), LATERAL idem_reserve(k, '{"to": "paid"}', 'due', t, lease_seconds => l, store_request => store) AS r;
SELECT k, idem_fail(action_id, attempt_id, 'refused', '{"code": 503}', retryable => true,
    retry_after_seconds => CASE WHEN k = 'later' THEN 3600 ELSE 0 END)
FROM reserved WHERE k IN ('now', 'later', 'no request') ORDER BY k;
SELECT idem_mark_unknown(action_id, attempt_id) FROM reserved WHERE k = 'unknown';
SELECT pg_sleep(0.01);
CREATE TEMP TABLE pulled AS SELECT * FROM idem_due(lease_seconds => 100, tenant => 'due', worker => 'puller 1');
SELECT p.granted, p.decision, p.attempt, p.state, p.lease_expires_at > now() + interval '1 minute' AS leased, p.error,
    p.response, p.provider_key = r.provider_key AS same_provider_key, p.key, p.tenant, p.action_type, p.request
FROM pulled AS p JOIN reserved AS r USING (action_id) ORDER BY key;
SELECT count(*) FROM idem_due(tenant => 'due');
SELECT key, state, attempt, worker FROM idem_actions WHERE tenant = 'due' ORDER BY key;

-- Ended as after idem_reserve; a client that comes back is answered.
SELECT p.key, idem_commit(action_id, attempt_id, '{"ok": true}') FROM pulled AS p ORDER BY key;
SELECT granted, decision, response FROM idem_reserve('now', '{"to": "paid"}', 'due', 'due.create');

-- No attempts left: the pull ends the action, and grants nothing.
SELECT r.action_id, r.attempt_id FROM idem_reserve('spent', '{}', 'due', 'due.create', store_request => true) AS r \gset
SELECT idem_fail(:'action_id', :'attempt_id', 'refused', retryable => true, retry_after_seconds => 0);
SELECT policy_version FROM idem_register_action_type('due.create', 'deduplicated_creation', max_attempts => 1);
SELECT count(*) FROM idem_due(tenant => 'due');
SELECT state FROM idem_status('spent', 'due');

-- A longer lease than a type allows is the longest it allows.
SELECT name FROM idem_register_action_type('due.short', 'idempotent_mutation', lease => '1 s', max_lease => '2 s');
SELECT r.action_id, r.attempt_id FROM idem_reserve('short', '{}', 'due', 'due.short', store_request => true) AS r \gset
SELECT idem_release(:'action_id', :'attempt_id');
SELECT key, lease_expires_at <= clock_timestamp() + interval '2 s' AS shortened FROM idem_due(1, 100, 'due.short', 'due');

SELECT idem_due(0);
SELECT idem_due(1, 0);
SELECT idem_due(tenant => repeat('x', 256));
SELECT idem_due(action_type => '');
SELECT idem_due(tenant => 'due', worker => repeat('x', 256));
BEGIN READ ONLY;
SELECT idem_due();
ROLLBACK;
DROP TABLE reserved;
