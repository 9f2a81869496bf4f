-- Views: no payload, no attempt_id. security_barrier, so that a condition of the reader's runs after ours.

CREATE FUNCTION @extschema@.idem_state_word(state "char") RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN state = 'p' THEN 'proposed' WHEN state = 'a' THEN 'approved' WHEN state = 's' THEN 'started'
        WHEN state = 'u' THEN 'unknown' WHEN state = 'r' THEN 'retryable' WHEN state = 'c' THEN 'committed'
        WHEN state = 'f' THEN 'failed' WHEN state = 'j' THEN 'rejected' WHEN state = 'x' THEN 'expired' END
$$;
COMMENT ON FUNCTION @extschema@.idem_state_word IS 'The word for a state''s letter in the ledger.';

CREATE VIEW @extschema@.idem_actions WITH (security_barrier) AS
SELECT a.action_id, a.tenant, a.key, a.action_type, a.actor, a.target,
    CASE WHEN a.state IN ('c', 'f', 'j') AND a.expires_at <= pg_catalog.clock_timestamp() THEN 'expired'
        ELSE @extschema@.idem_state_word(a.state) END AS state,
    a.attempt, a.fence,
    CASE WHEN a.state = 's' THEN a.lease_expires_at WHEN a.state = 'u' THEN a.reconcile_lease_expires_at END
        AS lease_expires_at,
    a.due_at, a.deadline_at, a.resource_id, a.external_request_id, a.reason,
    coalesce(a.flags, 0) & 64 <> 0 AS discrepancy,
    coalesce(a.flags, 0) & 128 <> 0 AS escalated,
    coalesce(a.flags, 0) & 512 <> 0 AS needs_compensation,
    a.worker, a.workflow_id, a.session_id, a.payload_version, a.policy_version,
    a.created_at, a.ended_at, a.expires_at
FROM @extschema@.idem_action AS a
WHERE @extschema@.idem_sees_tenant(a.tenant);
COMMENT ON VIEW @extschema@.idem_actions IS 'The ledger as people read it.';

CREATE VIEW @extschema@.idem_attempts WITH (security_barrier) AS
SELECT t.action_id, t.n, t.attempt, t.fence, t.reconciling, t.outcome, t.ended_at
FROM @extschema@.idem_attempt AS t
WHERE (SELECT @extschema@.idem_sees_tenant(NULL)) OR EXISTS (
    SELECT FROM @extschema@.idem_action AS a WHERE a.action_id = t.action_id AND @extschema@.idem_sees_tenant(a.tenant));
COMMENT ON VIEW @extschema@.idem_attempts IS 'Attempts that did not end in a first-try commit.';

CREATE VIEW @extschema@.idem_unresolved WITH (security_barrier) AS
SELECT a.action_id, a.tenant, a.key, a.action_type, seen.state, a.attempt,
    -- Whoever looks into it just now; nobody's name stands here when nobody does.
    (SELECT coalesce(e.note, e.role) FROM @extschema@.idem_event AS e
        WHERE a.reconcile_lease_expires_at > seen.now AND e.action_id = a.action_id AND e.event = 'reconcile'
        ORDER BY e.n DESC LIMIT 1) AS owner,
    seen.now - coalesce(
        (SELECT pg_catalog.max(t.ended_at) FROM @extschema@.idem_attempt AS t
            WHERE t.action_id = a.action_id AND NOT t.reconciling), a.created_at) AS age,
    seen.deadline_at, a.due_at, a.reconcile_lease_expires_at, a.probes,
    last.finding AS last_evidence, last.resource_id AS last_resource_id, last.at AS last_evidence_at,
    coalesce(a.flags, 0) & 32 <> 0 AS positive_evidence,
    coalesce(a.flags, 0) & 64 <> 0 AS discrepancy,
    coalesce(a.flags, 0) & 512 <> 0 AS needs_compensation,
    seen.needs_review, a.resource_id, a.external_request_id, a.reason, p.lookup_hint,
    CASE WHEN coalesce(a.flags, 0) & 64 <> 0 OR seen.needs_review
            THEN 'a person decides: idem_decide(action_id, applied | not_applied | retry, note)'
        WHEN a.state = 'c' THEN 'undo the part that happened: idem_compensate(action_id, key, request)'
        WHEN a.reconcile_lease_expires_at > seen.now THEN 'its reconciler reports: idem_resolve'
        WHEN a.due_at > seen.now THEN 'wait until due_at'
        ELSE 'look it up: idem_reconcile_next, then idem_resolve' END AS next_step
FROM @extschema@.idem_action AS a
JOIN (
    SELECT o.action_id FROM @extschema@.idem_open AS o WHERE o.queue IN ('lease', 'reconciliation', 'review')
    UNION
    -- Dead first attempts that nobody has come by yet.
    SELECT f.action_id FROM @extschema@.idem_action AS f
    WHERE f.visit_at > (SELECT c.visited_to FROM @extschema@.idem_cursor AS c WHERE c.purpose = 'lease')
        AND f.visit_at <= pg_catalog.clock_timestamp() AND f.state = 's'
) AS o USING (action_id)
LEFT JOIN LATERAL (
    SELECT t.lookup_hint, t.resolve_deadline FROM @extschema@.idem_action_type AS t
    WHERE t.name = a.action_type ORDER BY t.policy_version DESC LIMIT 1
) AS p ON true
LEFT JOIN LATERAL (
    SELECT e.finding, e.resource_id, e.at FROM @extschema@.idem_event AS e
    WHERE e.action_id = a.action_id AND (e.finding IS NOT NULL OR e.resource_id IS NOT NULL) ORDER BY e.n DESC LIMIT 1
) AS last ON true,
LATERAL (SELECT pg_catalog.clock_timestamp() AS now,
    a.state = 's' AND a.lease_expires_at <= pg_catalog.clock_timestamp() AS dead) AS clock,
LATERAL (
    SELECT clock.now,
        CASE WHEN clock.dead THEN 'unknown' ELSE @extschema@.idem_state_word(a.state) END AS state,
        CASE WHEN clock.dead THEN coalesce(a.deadline_at, a.lease_expires_at
            + coalesce(p.resolve_deadline, 86400000000) * interval '1 microsecond') ELSE a.deadline_at END AS deadline_at
) AS judged,
LATERAL (
    SELECT judged.now, judged.state, judged.deadline_at,
        coalesce(a.flags, 0) & 128 <> 0 OR coalesce(judged.deadline_at <= judged.now, false) AS needs_review
) AS seen
WHERE @extschema@.idem_sees_tenant(a.tenant) AND (a.state = 'u' OR clock.dead OR coalesce(a.flags, 0) & 64 <> 0
    OR a.state = 'c' AND coalesce(a.flags, 0) & 512 <> 0 AND NOT EXISTS (
        -- A compensation that is not there any more may have happened.
        SELECT FROM @extschema@.idem_compensation AS l LEFT JOIN @extschema@.idem_action AS child ON child.action_id = l.action_id
        WHERE l.live_for = a.action_id AND (child.state IS NULL OR child.state NOT IN ('f', 'j'))));
COMMENT ON VIEW @extschema@.idem_unresolved IS 'Actions whose outcome is not known, or about which reports contradict each other, or of which only a part happened: who is at it, how long it has been so, until when, what was found last, how to look it up, and what to do next.';

CREATE VIEW @extschema@.idem_compensations WITH (security_barrier) AS
SELECT a.action_id, a.tenant, a.key, a.action_type,
    CASE WHEN a.expires_at <= pg_catalog.clock_timestamp() THEN 'expired'
        ELSE @extschema@.idem_state_word(a.state) END AS state,
    a.resource_id, coalesce(a.flags, 0) & 512 <> 0 AS needs_compensation,
    l.action_id AS compensation_id, c.key AS compensation_key, c.action_type AS compensation_type,
    CASE WHEN c.expires_at <= pg_catalog.clock_timestamp() THEN 'expired'
        ELSE @extschema@.idem_state_word(c.state) END AS compensation_state,
    c.resource_id AS compensation_resource_id, l.live_for IS NOT NULL AS stands, l.made_at
FROM @extschema@.idem_compensation AS l
LEFT JOIN @extschema@.idem_action AS c ON c.action_id = l.action_id
LEFT JOIN @extschema@.idem_action AS a ON a.action_id = l.parent_id
WHERE @extschema@.idem_sees_tenant(coalesce(c.tenant, a.tenant));
COMMENT ON VIEW @extschema@.idem_compensations IS 'Each compensation with its original: both outcomes in one row. stands is false for one that another has replaced.';

CREATE VIEW @extschema@.idem_overdue WITH (security_barrier) AS
SELECT a.action_id, a.tenant, a.key, a.action_type, @extschema@.idem_state_word(a.state) AS state, a.attempt,
    late.since, pg_catalog.clock_timestamp() - late.since AS late
FROM @extschema@.idem_open AS o JOIN @extschema@.idem_action AS a USING (action_id),
    LATERAL (SELECT CASE WHEN a.state = 's' THEN a.lease_expires_at WHEN a.state = 'u' THEN a.deadline_at
        WHEN a.state = 'r' THEN a.due_at ELSE a.approval_expires_at END AS since) AS late
WHERE a.state IN ('p', 'a', 's', 'u', 'r') AND late.since <= pg_catalog.clock_timestamp()
    AND @extschema@.idem_sees_tenant(a.tenant)
UNION ALL
-- First attempts that the sweep has not come by yet.
SELECT a.action_id, a.tenant, a.key, a.action_type, 'started', a.attempt,
    a.lease_expires_at, pg_catalog.clock_timestamp() - a.lease_expires_at
FROM @extschema@.idem_action AS a
WHERE a.visit_at > (SELECT c.visited_to FROM @extschema@.idem_cursor AS c WHERE c.purpose = 'settled')
    AND a.visit_at <= pg_catalog.clock_timestamp() AND a.state = 's'
    AND a.lease_expires_at <= pg_catalog.clock_timestamp()
    AND NOT EXISTS (SELECT FROM @extschema@.idem_open AS o WHERE o.action_id = a.action_id)
    AND @extschema@.idem_sees_tenant(a.tenant);
COMMENT ON VIEW @extschema@.idem_overdue IS 'Actions that are not ended and past the time they should have moved on: dead attempts, unresolved outcomes past their deadline, retries nobody came for.';
