-- What approvers decide on.

CREATE VIEW @extschema@.idem_proposals WITH (security_barrier) AS
SELECT a.action_id, a.tenant, a.key, a.action_type, a.actor, a.target,
    CASE WHEN a.state OPERATOR(pg_catalog.=) 'a' AND NOT current.approved THEN 'proposed'
        ELSE @extschema@.idem_state_word(a.state) END AS state,
    CASE WHEN NOT current.approved THEN a.request END AS request, a.fingerprint, current.policy_version,
    p.at AS proposed_at, p.role AS proposer_role, p.session_role AS proposer_session_role, p.name AS proposer,
    a.approval_expires_at, current.approved, a.workflow_id, a.session_id
FROM @extschema@.idem_open AS o
JOIN @extschema@.idem_action AS a ON a.action_id OPERATOR(pg_catalog.=) o.action_id
CROSS JOIN LATERAL (
    SELECT coalesce(pg_catalog.max(t.policy_version), 0) AS policy_version,
        a.state OPERATOR(pg_catalog.<>) 'p'
            AND coalesce(pg_catalog.max(t.policy_version), 0) OPERATOR(pg_catalog.=) coalesce(a.approval_policy_version, -1)
            AND a.approval_expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() AS approved
    FROM @extschema@.idem_action_type AS t WHERE t.name OPERATOR(pg_catalog.=) a.action_type
) AS current
LEFT JOIN LATERAL (
    SELECT e.at, e.role, e.session_role, e.name FROM @extschema@.idem_event AS e
    WHERE e.action_id OPERATOR(pg_catalog.=) a.action_id AND e.event OPERATOR(pg_catalog.=) 'proposed'
    ORDER BY e.n LIMIT 1
) AS p ON true
WHERE @extschema@.idem_sees_tenant(a.tenant) AND ((a.state OPERATOR(pg_catalog.=) ANY ('{p,a}'::"char"[])
        AND a.approval_expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())
    OR (a.state OPERATOR(pg_catalog.=) ANY ('{r,u}'::"char"[]) AND EXISTS (
        SELECT FROM @extschema@.idem_action_type AS t WHERE t.name OPERATOR(pg_catalog.=) a.action_type
            AND t.policy_version OPERATOR(pg_catalog.=) current.policy_version AND t.requires_approval)));
COMMENT ON VIEW @extschema@.idem_proposals IS 'What approvers decide on: proposals with their request until they are decided, approved actions nobody has started, and actions whose approval may be renewed.';
