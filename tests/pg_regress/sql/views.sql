-- Views: no payload (but for approvers), no attempt_id; security_barrier; states as of now.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
SELECT c.relname, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
    AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_idem')
WHERE c.relkind = 'v' AND c.relname <> 'idem_proposals' AND (attname IN ('attempt_id', 'reconcile_id', 'request', 'response', 'error', 'evidence', 'candidates', 'fingerprint', 'provider_key')
    OR a.atttypid IN ('jsonb'::regtype, 'json'::regtype, 'bytea'::regtype));
SELECT c.relname, c.reloptions FROM pg_class AS c WHERE c.relkind = 'v' AND c.relname IN ('idem_actions', 'idem_policy', 'idem_proposals', 'idem_attempts', 'idem_unresolved', 'idem_overdue') ORDER BY 1;

SELECT policy_version FROM idem_register_action_type('views', 'idempotent_mutation', ttl => '0 s');
SELECT policy_version FROM idem_register_action_type('views late', 'reversible', resolve_deadline => '0 s');
SELECT name, decision FROM unnest('{committed,failed,retryable,started,unknown}'::text[]) AS name,
    LATERAL idem_reserve('views ' || name, '{}', 'acme', actor => 'user:7', target => 'order 4821', attempt_id => :'one');
SELECT idem_commit(idem_action_id('views committed', 'acme'), :'one', '{"n": 1}', 're_1', 'req_1');
SELECT idem_fail(idem_action_id('views failed', 'acme'), :'one', 'refused', '{"n": 1}');
SELECT idem_fail(idem_action_id('views retryable', 'acme'), :'one', 'refused', '{"n": 1}', true, 0);
SELECT idem_mark_unknown(idem_action_id('views unknown', 'acme'), :'one', 'timeout', 'req_1');
SELECT decision FROM idem_reserve('views expired', '{}', 'acme', 'views', attempt_id => :'one');
SELECT idem_commit(idem_action_id('views expired', 'acme'), :'one', '{"n": 1}');
SELECT decision FROM idem_reserve('views lapsed', '{}', 'acme', 'views', attempt_id => :'one', lease_seconds => 0.01);
SELECT decision FROM idem_reserve('views twice lapsed', '{}', 'acme', 'views', attempt_id => :'one', lease_seconds => 0.01);
SELECT decision FROM idem_reserve('views late', '{}', 'acme', 'views late', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('views late', 'acme'), :'one', 'no idea');
SELECT pg_sleep(0.02);
SELECT decision, attempt FROM idem_reserve('views twice lapsed', '{}', 'acme', 'views', attempt_id => :'two', lease_seconds => 0.01);
SELECT pg_sleep(0.02);

SELECT key, state, attempt, lease_expires_at IS NOT NULL AS lease, due_at IS NOT NULL AS due, deadline_at IS NOT NULL AS deadline, resource_id, external_request_id, reason,
    discrepancy, escalated, needs_compensation, ended_at IS NOT NULL AS ended FROM idem_actions WHERE tenant = 'acme' AND key LIKE 'views %' ORDER BY key;
SELECT DISTINCT actor, target FROM idem_actions WHERE key LIKE 'views %' ORDER BY 1;
-- What is not resolved, and whether a person has to look
SELECT key, attempt, age >= interval '0' AS age, needs_review, positive_evidence, discrepancy, external_request_id, reason FROM idem_unresolved WHERE key LIKE 'views %' ORDER BY key;
-- What should have moved on: dead attempts, seen by the sweep or not; unresolved past the deadline; retries nobody came for.
SELECT key, state, attempt, late >= interval '0' AS late FROM idem_overdue WHERE key LIKE 'views %' ORDER BY key;
SELECT attempt, reconciling, outcome FROM idem_attempts WHERE action_id = idem_action_id('views twice lapsed', 'acme');
-- Escalated and a live reconciler
SELECT decision FROM idem_reserve('views unknown', '{}', 'acme', actor => 'user:7', target => 'order 4821', attempt_id => :'two', can_reconcile => true);
SELECT reconcile_lease_expires_at > clock_timestamp() AS reconciling FROM idem_unresolved WHERE key = 'views unknown';
SELECT idem_add_evidence(idem_action_id('views unknown', 'acme'), :'one', 'applied');
SELECT state FROM idem_resolve(idem_action_id('views unknown', 'acme'), :'two', 'ambiguous');
SELECT escalated FROM idem_actions WHERE key = 'views unknown';
SELECT needs_review, positive_evidence FROM idem_unresolved WHERE key = 'views unknown';
-- Resolved, they are gone from both.
SELECT idem_commit(idem_action_id('views unknown', 'acme'), :'one');
SELECT idem_commit(idem_action_id('views late', 'acme'), :'one');
SELECT key FROM idem_unresolved WHERE key LIKE 'views %' ORDER BY key COLLATE "C";
SELECT key FROM idem_overdue WHERE key IN ('views unknown', 'views late');
