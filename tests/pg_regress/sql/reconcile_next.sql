-- The reconcilers' queue: due unknown actions, each to one of them, the nearest deadline first.
\set VERBOSITY sqlstate
SELECT name FROM idem_register_action_type('reconcile_next.slow', 'deduplicated_creation', resolve_deadline => '2 days');
SELECT name FROM idem_register_action_type('reconcile_next.slowest', 'deduplicated_creation', resolve_deadline => '3 days');
SELECT name FROM idem_register_action_type('reconcile_next.urgent', 'deduplicated_creation', resolve_deadline => '1 hour');
SELECT name FROM idem_register_action_type('reconcile_next.late', 'deduplicated_creation', resolve_deadline => '0');
SELECT name FROM idem_register_action_type('reconcile_next.set', 'idempotent_mutation');
UPDATE idem_action_type SET lookup_hint = 'GET /refunds?key=' WHERE name = 'reconcile_next.urgent';

-- Nothing of this test yet: an empty queue is no row.
SELECT count(*) FROM idem_reconcile_next(action_type => 'reconcile_next.slow');

-- Two that said unknown, one that died, one whose deadline has passed, one that may simply be repeated.
CREATE TEMP TABLE reserved AS
SELECT k, r.action_id, r.attempt_id, r.provider_key, r.fence FROM (VALUES
    ('reconcile_next 1', 'reconcile_next.slowest', 60), ('reconcile_next 2', 'reconcile_next.urgent', 60),
    ('reconcile_next 3', 'reconcile_next.slow', 0.001), ('reconcile_next 4', 'reconcile_next.late', 60),
    ('reconcile_next 5', 'reconcile_next.set', 60)) AS v(k, t, l),
    LATERAL idem_reserve(k, '{"amount": 5}', 'acme', t, 'ann', 'order 7', lease_seconds => l) AS r;
SELECT k, idem_mark_unknown(action_id, attempt_id, 'timed out', 'req ' || k) FROM reserved
WHERE k <> 'reconcile_next 3' ORDER BY k;
SELECT pg_sleep(0.01);

-- The dead one is found without a sweep. The one past its deadline is a person's.
SELECT n.n, n.key, n.tenant, n.action_type, n.actor, n.target, n.attempt, n.external_request_id, n.reason, n.evidence, n.probes,
    n.lookup_hint, n.provider_key = r.provider_key AS same_provider_key, n.attempt_id <> r.attempt_id AS own_token,
    n.fingerprint = idem_action_fingerprint(idem_fingerprint('{"amount": 5}'), n.action_type, 'acme', 'ann', 'order 7')
        AS same_fingerprint,
    n.fence > r.fence AS fenced, n.lease_expires_at > now() + interval '1 minute' AS leased, n.deadline_at > now() AS in_time
FROM idem_reconcile_next(lease_seconds => 100, tenant => 'acme', worker => 'prober 1') WITH ORDINALITY AS n(
    action_id, attempt_id, fence, lease_expires_at, tenant, key, action_type, actor, target, fingerprint, attempt, provider_key,
    external_request_id, reason, evidence, probes, deadline_at, lookup_hint, n)
JOIN reserved AS r USING (action_id) ORDER BY n.n;
SELECT count(*) FROM idem_reconcile_next(tenant => 'acme');
SELECT granted, decision FROM idem_reserve('reconcile_next 4', '{"amount": 5}', 'acme', 'reconcile_next.late', 'ann', 'order 7');

-- By type, by tenant, by number.
SELECT k, (idem_decide(action_id, 'retry', 'again')) FROM reserved ORDER BY k;
CREATE TEMP TABLE again AS
SELECT k, r.action_id, r.attempt_id FROM (VALUES
    ('reconcile_next 6', 'reconcile_next.slow', 'acme'), ('reconcile_next 7', 'reconcile_next.slow', 'acme'),
    ('reconcile_next 8', 'reconcile_next.urgent', 'acme'), ('reconcile_next 9', 'reconcile_next.urgent', 'other')) AS v(k, t, tenant),
    LATERAL idem_reserve(k, tenant => v.tenant, action_type => t) AS r;
SELECT k, idem_mark_unknown(action_id, attempt_id) FROM again ORDER BY k;
SELECT key FROM idem_reconcile_next(1, action_type => 'reconcile_next.slow');
SELECT key FROM idem_reconcile_next(tenant => 'other');
SELECT key FROM idem_reconcile_next(action_type => 'reconcile_next.urgent', tenant => 'acme');
SELECT key FROM idem_reconcile_next(tenant => 'acme');

-- What was found comes with the next lease; a probe puts the next one off.
SELECT action_id, attempt_id FROM idem_reserve('reconcile_next evidence', tenant => 'seen', action_type => 'reconcile_next.urgent') \gset
SELECT idem_mark_unknown(:'action_id', :'attempt_id');
SELECT idem_add_evidence(:'action_id', :'attempt_id', 'inconclusive', '{"status": 202}', note => 'said "wait"');
SELECT key, evidence - 'at' AS evidence, jsonb_typeof(evidence) FROM (
    SELECT key, attempt_id, e.evidence FROM idem_reconcile_next(tenant => 'seen'), LATERAL jsonb_array_elements(evidence) AS e(evidence)) AS n;
SELECT event, attempt, note FROM idem_event WHERE action_id = :'action_id' ORDER BY n;

-- In a list of columns it is a set as well. Values that are none are refused.
SELECT idem_reconcile_next(tenant => 'nobody');
SELECT idem_reconcile_next(0);
SELECT idem_reconcile_next(1001);
SELECT idem_reconcile_next(1, 0);
SELECT idem_reconcile_next(1, -1);
SELECT idem_reconcile_next(1, NULL, '');
SELECT idem_reconcile_next(1, NULL, NULL, repeat('x', 256));
BEGIN READ ONLY;
SELECT idem_reconcile_next(tenant => 'nobody');
ROLLBACK;
DROP TABLE reserved;
