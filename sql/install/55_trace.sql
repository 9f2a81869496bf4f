-- The story of one action, for people. No payload, no token.

CREATE FUNCTION @extschema@.idem_trace(key text, tenant text = '')
RETURNS TABLE (at timestamptz, attempt integer, event text, detail text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    story @extschema@.idem_action;
    asked_at timestamptz := clock_timestamp();
BEGIN
    -- Refuses what is no name, and a tenant that is not the caller's.
    PERFORM @extschema@.idem_status($1, $2);
    SELECT a.* INTO story FROM @extschema@.idem_action AS a
    WHERE a.action_id = @extschema@.idem_action_id($1, $2) AND a.key = $1 AND a.tenant = $2;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH said AS (
        -- place: what happened at the same moment is told in this order.
        SELECT story.created_at AS at, 0 AS place, 0 AS n, NULL::integer AS attempt, 'action' AS event,
            format('actionId=%s type=%s fingerprint=%s', story.action_id, story.action_type,
                encode(story.fingerprint, 'hex'))
                || coalesce(' workflow=' || story.workflow_id, '') AS detail
        UNION ALL
        SELECT story.created_at, 2, 0, 1, 'execute', 'attemptId=1 -> granted'
        WHERE story.attempt > 0 AND NOT EXISTS (
            SELECT FROM @extschema@.idem_event AS e
            WHERE e.action_id = story.action_id AND e.event = 'execute' AND e.attempt = 1)
        UNION ALL
        SELECT t.ended_at, 3, t.n, t.attempt, t.outcome,
            CASE WHEN t.reconciling THEN format('attemptId=%s -> lookup %s', t.attempt, t.outcome)
                ELSE format('attemptId=%s -> %s', t.attempt, t.outcome) END
        FROM @extschema@.idem_attempt AS t
        WHERE t.action_id = story.action_id AND NOT EXISTS (
            -- The event says the same, and more.
            SELECT FROM @extschema@.idem_event AS e
            WHERE e.action_id = t.action_id AND e.at = t.ended_at AND e.event = t.outcome)
        UNION ALL
        SELECT e.at, 4, e.n, e.attempt, e.event,
            CASE WHEN e.event = 'execute' THEN format('attemptId=%s -> granted', e.attempt)
                WHEN e.event = 'reconcile' THEN format('attemptId=%s -> lookup begun by %s', e.attempt, coalesce(e.note, e.role))
                WHEN e.event IN ('applied', 'partially_applied', 'not_applied', 'ambiguous', 'inconclusive')
                    THEN format('attemptId=%s -> lookup: %s', e.attempt, e.event)
                WHEN e.event IN ('evidence', 'discrepancy')
                    THEN e.event || ' -> ' || coalesce(e.finding, 'a result of an attempt that had lost the action')
                        || coalesce(', ' || e.note, '')
                WHEN e.event = 'compensation' THEN 'compensation -> actionId=' || e.note
                WHEN e.event IN ('committed', 'committed_late', 'unknown', 'failed', 'retryable', 'released', 'lapsed')
                    THEN format('attemptId=%s -> %s', e.attempt, e.event) || coalesce(': ' || e.note, '')
                ELSE e.event || ' by ' || e.role || coalesce(': ' || e.note, '') END
            || coalesce(', resource=' || e.resource_id, '') || coalesce(', request=' || e.external_request_id, '')
        FROM @extschema@.idem_event AS e WHERE e.action_id = story.action_id
        UNION ALL
        SELECT story.created_at, 1, 0, NULL, 'compensates', 'compensates -> actionId=' || l.parent_id
        FROM @extschema@.idem_compensation AS l WHERE l.action_id = story.action_id
        UNION ALL
        -- A first try that was committed leaves no other trace.
        SELECT story.ended_at, 5, 0, story.attempt, 'committed', format('attemptId=%s -> committed', story.attempt)
        WHERE story.state = 'c' AND NOT EXISTS (
            SELECT FROM @extschema@.idem_event AS e WHERE e.action_id = story.action_id
                AND e.event IN ('committed', 'committed_late', 'applied', 'partially_applied', 'decided'))
        UNION ALL
        SELECT coalesce(story.ended_at, asked_at), 6, 0, NULL, 'outcome', 'outcome -> '
            || CASE WHEN story.state IN ('c', 'f', 'j') AND story.expires_at <= asked_at
                    THEN 'expired'
                WHEN story.state = 's' AND story.lease_expires_at <= asked_at
                    THEN 'unknown, attempt ' || story.attempt || ' is past its lease'
                WHEN story.state = 's' THEN 'started, attempt ' || story.attempt || ' has its lease'
                ELSE @extschema@.idem_state_word(story.state) END
            || coalesce(', resource=' || story.resource_id, '')
            || coalesce(', request=' || story.external_request_id, '')
            || CASE WHEN coalesce(story.flags, 0) & 64 <> 0 THEN ', reports contradict each other' ELSE '' END
            || CASE WHEN coalesce(story.flags, 0) & 128 <> 0 THEN ', a person has to decide' ELSE '' END
            || CASE WHEN coalesce(story.flags, 0) & 512 <> 0 THEN ', in part' ELSE '' END
    )
    SELECT s.at, s.attempt, s.event, s.detail FROM said AS s
    ORDER BY s.event = 'outcome', s.at, s.place, s.n;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_trace IS 'The story of one action in order: what happened, in which attempt, and the outcome. No payload, no token: fit for a report. No row for an action that is not there. Errors: 22004, 22023, 42501.';
