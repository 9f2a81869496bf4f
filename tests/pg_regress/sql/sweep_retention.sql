-- idem_sweep: past its ttl an ended action loses its content; past tombstone_ttl it goes, with its history.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
CALL idem_sweep_all();
SELECT policy_version FROM idem_register_action_type('sweep_retention', 'deduplicated_creation', ttl => '0 s');
SELECT policy_version FROM idem_register_action_type('sweep_retention gone', 'deduplicated_creation', ttl => '0 s', tombstone_ttl => '0 s');
SELECT kind, name, decision FROM (VALUES ('sweep_retention'), ('sweep_retention gone')) AS kinds(kind), (VALUES ('committed'), ('failed'), ('late')) AS names(name),
    LATERAL idem_reserve(kind || ' ' || name, '{"secret": 1}', 'acme', kind, 'user:7', 'secret order', attempt_id => :'one', lease_seconds => 0.01,
        worker => 'secret worker', workflow_id => 'secret workflow', session_id => 'secret session', store_request => true) ORDER BY 1, 2;
SELECT kind, idem_commit(idem_action_id(kind || ' committed', 'acme'), :'one', '{"secret": 1}', 'secret re_1', 'secret req_1') AS committed,
    idem_fail(idem_action_id(kind || ' failed', 'acme'), :'one', 'refused', '{"secret": 1}') AS failed,
    idem_mark_unknown(idem_action_id(kind || ' late', 'acme'), :'one', 'secret reason', 'secret req_1') AS late
FROM (VALUES ('sweep_retention'), ('sweep_retention gone')) AS kinds(kind) ORDER BY 1;
SELECT kind, decision FROM (VALUES ('sweep_retention'), ('sweep_retention gone')) AS kinds(kind),
    LATERAL idem_reserve(kind || ' late', '{"secret": 1}', 'acme', kind, 'user:7', 'secret order', attempt_id => :'two', can_reconcile => true) ORDER BY 1;
SELECT kind, idem_add_evidence(idem_action_id(kind || ' late', 'acme'), :'one', 'applied', '{"secret": 1}', 'secret re_1', 'secret req_1', 'secret note'),
    (idem_resolve(idem_action_id(kind || ' late', 'acme'), :'two', 'applied', '{"secret": 1}', 'secret re_1', 'secret req_1', '{"secret": 1}', '["secret"]')).state
FROM (VALUES ('sweep_retention'), ('sweep_retention gone')) AS kinds(kind) ORDER BY 1;
SELECT pg_sleep(0.02);
SELECT scrubbed >= 3 AS scrubbed, removed >= 0 AS removed FROM idem_sweep();
-- Nothing of the content is left in the row or in its history; the name, the fingerprint and the type are.
SELECT key, state, action_type, fingerprint = idem_action_fingerprint(idem_fingerprint('{"secret": 1}'), action_type, 'acme', 'user:7', 'secret order') AS fingerprint,
    a::text LIKE '%secret%' AS secrets FROM (SELECT *, 0 FROM idem_action) AS a WHERE key LIKE 'sweep\_retention %' AND key NOT LIKE '% gone %' ORDER BY key;
SELECT count(*) > 0 AS history, count(*) FILTER (WHERE e::text LIKE '%secret%') AS secrets FROM idem_event AS e JOIN idem_action USING (action_id)
WHERE key LIKE 'sweep\_retention %' AND key NOT LIKE '% gone %';
SELECT key, request, response, error, reason, actor, target, resource_id, external_request_id FROM idem_action WHERE key LIKE 'sweep\_retention %' AND key NOT LIKE '% gone %' ORDER BY key;
-- The tombstone's time counts from the end of the retention, however late the sweep is.
SELECT key, extract(day FROM expires_at - ended_at) AS days_kept FROM idem_action WHERE key LIKE 'sweep\_retention %' AND key NOT LIKE '% gone %' ORDER BY key;
SELECT key, decision FROM (VALUES ('committed'), ('failed'), ('late')) AS names(key),
    LATERAL idem_reserve('sweep_retention ' || key, '{"secret": 1}', 'acme', 'sweep_retention', 'user:7', 'secret order') ORDER BY 1;
-- A tombstone past its time goes, and everything with it.
CALL idem_sweep_all();
CALL idem_sweep_all();
SELECT count(*) FROM idem_action WHERE key LIKE 'sweep\_retention gone %';
SELECT (SELECT count(*) FROM idem_event WHERE action_id = a.id) AS events, (SELECT count(*) FROM idem_attempt WHERE action_id = a.id) AS attempts,
    (SELECT count(*) FROM idem_open WHERE action_id = a.id) AS open FROM idem_action_id('sweep_retention gone late', 'acme') AS a(id);
SELECT state FROM idem_status('sweep_retention gone committed', 'acme');
-- The others stay, whatever is swept.
SELECT count(*) FROM idem_action WHERE key LIKE 'sweep\_retention %';

-- Kept as long as was asked for; ended before the first visit.
SELECT decision FROM idem_reserve('sweep_retention longer', '{}', action_type => 'sweep_retention', attempt_id => :'one', lease_seconds => 0.01, ttl_seconds => 3600);
SELECT idem_commit(idem_action_id('sweep_retention longer'), :'one', '{"n": 1}');
SELECT decision FROM idem_reserve('sweep_retention default', '{}', attempt_id => :'one', lease_seconds => 0.01);
SELECT idem_commit(idem_action_id('sweep_retention default'), :'one', '{"n": 1}');
-- Ended after the first visit.
SELECT decision FROM idem_reserve('sweep_retention after', '{}', action_type => 'sweep_retention gone', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
CALL idem_sweep_all();
SELECT idem_commit(idem_action_id('sweep_retention after'), :'one', '{"n": 1}');
CALL idem_sweep_all();
CALL idem_sweep_all();
SELECT decision, response FROM idem_reserve('sweep_retention longer', '{}', action_type => 'sweep_retention');
SELECT decision, response FROM idem_reserve('sweep_retention default', '{}');
SELECT state FROM idem_status('sweep_retention after');
