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
SELECT a.action_id, a.tenant, a.key, a.action_type, a.attempt,
    pg_catalog.clock_timestamp() - coalesce(
        (SELECT pg_catalog.max(t.ended_at) FROM @extschema@.idem_attempt AS t
            WHERE t.action_id = a.action_id AND NOT t.reconciling), a.created_at) AS age,
    a.deadline_at, a.due_at, a.reconcile_lease_expires_at, a.probes,
    coalesce(a.flags, 0) & 32 <> 0 AS positive_evidence,
    coalesce(a.flags, 0) & 64 <> 0 AS discrepancy,
    coalesce(a.flags, 0) & 128 <> 0 OR a.deadline_at <= pg_catalog.clock_timestamp() AS needs_review,
    a.external_request_id, a.reason
FROM @extschema@.idem_open AS o JOIN @extschema@.idem_action AS a USING (action_id)
WHERE o.queue IN ('reconciliation', 'review') AND a.state = 'u' AND @extschema@.idem_sees_tenant(a.tenant);
COMMENT ON VIEW @extschema@.idem_unresolved IS 'Actions whose outcome is not known, with what is known about them.';

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
