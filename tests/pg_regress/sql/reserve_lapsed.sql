-- Started, the lease over: execute where the type may repeat, otherwise as unknown.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
SELECT name, policy_version FROM idem_register_action_type('reserve_lapsed read', 'read_only');
SELECT name, policy_version FROM idem_register_action_type('reserve_lapsed set', 'idempotent_mutation');
SELECT name, policy_version FROM idem_register_action_type('reserve_lapsed create', 'deduplicated_creation');
SELECT name, policy_version FROM idem_register_action_type('reserve_lapsed undo', 'reversible');
SELECT name, policy_version FROM idem_register_action_type('reserve_lapsed never', 'irreversible', requires_approval => false, marks_dispatch => false);
\set kinds '(VALUES (1, ''read''), (2, ''set''), (3, ''create''), (4, ''undo''), (5, ''never''), (6, ''unregistered'')) AS kinds(n, kind)'

SELECT kind, granted, decision FROM :kinds,
    LATERAL idem_reserve('reserve_lapsed ' || kind, '{}', action_type => 'reserve_lapsed ' || kind,
        attempt_id => :'one', lease_seconds => 0.01) ORDER BY n;
SELECT pg_sleep(0.02);
-- Nobody has been here, and the row says started still.
SELECT kind, state FROM :kinds, LATERAL idem_status('reserve_lapsed ' || kind) ORDER BY n;
SELECT kind, granted, decision, r.attempt, r.state, r.attempt_id = :'two' AS token, r.fence > a.fence AS fence_rises,
    provider_key IS NOT NULL AS provider_key, retry_after_seconds > 0 AS wait
FROM :kinds JOIN idem_action AS a ON a.key = 'reserve_lapsed ' || kind,
    LATERAL idem_reserve(a.key, '{}', action_type => a.action_type, attempt_id => :'two') AS r ORDER BY n;
-- The repeated ones run, the others wait for a reconciler; the dead attempt is on record.
SELECT kind, state, attempt, (SELECT queue FROM idem_open AS o WHERE o.action_id = s.action_id) AS queue,
    (SELECT string_agg(t.attempt || ' ' || t.outcome, ', ' ORDER BY t.n) FROM idem_attempt AS t
        WHERE t.action_id = s.action_id) AS attempts
FROM :kinds, LATERAL idem_status('reserve_lapsed ' || kind) AS s ORDER BY n;

-- Who can reconcile gets a reconciling attempt: not a permission, and not counted as an attempt.
SELECT decision FROM idem_reserve('reserve_lapsed reconcile', '{}', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT granted, decision, r.attempt, r.state, r.attempt_id = :'two' AS token, r.fence > a.fence AS fence_rises,
    provider_key IS NOT NULL AS provider_key, r.lease_expires_at > clock_timestamp() + interval '5 s' AS own_lease
FROM idem_action AS a, idem_reserve('reserve_lapsed reconcile', '{}', attempt_id => :'two', can_reconcile => true,
    lease_seconds => 10) AS r
WHERE a.action_id = idem_action_id('reserve_lapsed reconcile');
-- It makes no difference to those that may repeat.
SELECT decision FROM idem_reserve('reserve_lapsed can', '{}', action_type => 'reserve_lapsed read', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT granted, decision, attempt FROM idem_reserve('reserve_lapsed can', '{}', action_type => 'reserve_lapsed read',
    can_reconcile => true);

-- The deadline counts from the end of the lease, so a long-dead attempt is past it at once.
SELECT policy_version FROM idem_register_action_type('reserve_lapsed late', 'reversible', resolve_deadline => '10 ms');
SELECT decision FROM idem_reserve('reserve_lapsed late', '{}', action_type => 'reserve_lapsed late', lease_seconds => 0.01);
SELECT pg_sleep(0.03);
SELECT granted, decision, state FROM idem_reserve('reserve_lapsed late', '{}', action_type => 'reserve_lapsed late',
    can_reconcile => true);

-- No attempts left and an outcome open: unknown, and a person has to look.
SELECT policy_version FROM idem_register_action_type('reserve_lapsed once', 'read_only', max_attempts => 1);
SELECT decision FROM idem_reserve('reserve_lapsed once', '{}', action_type => 'reserve_lapsed once', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT granted, decision, state, attempt, attempt_id FROM idem_reserve('reserve_lapsed once', '{}',
    action_type => 'reserve_lapsed once');
SELECT state, escalated FROM idem_actions WHERE key = 'reserve_lapsed once';
