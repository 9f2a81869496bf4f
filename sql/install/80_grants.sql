-- Who may do what. A capability is a set of functions and views; nothing is granted to PUBLIC.

CREATE FUNCTION @extschema@.idem_capability(capability text) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE capability
        WHEN 'execute' THEN ARRAY['FUNCTION idem_reserve', 'FUNCTION idem_once', 'FUNCTION idem_once_call', 'FUNCTION idem_commit', 'FUNCTION idem_mark_unknown',
            'FUNCTION idem_dispatch', 'FUNCTION idem_fail', 'FUNCTION idem_renew', 'FUNCTION idem_release', 'FUNCTION idem_add_evidence',
            'FUNCTION idem_status', 'FUNCTION idem_status_by_id', 'FUNCTION idem_action_id', 'FUNCTION idem_key',
            'FUNCTION idem_canonical', 'FUNCTION idem_fingerprint', 'FUNCTION idem_fingerprint_text',
            'FUNCTION idem_action_fingerprint', 'FUNCTION idem_propose', 'FUNCTION idem_cancel', 'FUNCTION idem_outbox_put', 'FUNCTION idem_outbox_put_many',
            'FUNCTION idem_inbox_accept', 'FUNCTION idem_inbox_accept_many']
        WHEN 'relay' THEN ARRAY['FUNCTION idem_due', 'FUNCTION idem_commit', 'FUNCTION idem_mark_unknown', 'FUNCTION idem_dispatch', 'FUNCTION idem_fail',
            'FUNCTION idem_renew', 'FUNCTION idem_release', 'FUNCTION idem_add_evidence', 'FUNCTION idem_status',
            'FUNCTION idem_status_by_id', 'FUNCTION idem_action_id', 'FUNCTION idem_outbox_claim', 'FUNCTION idem_outbox_ack',
            'FUNCTION idem_outbox_ack_many', 'FUNCTION idem_outbox_nack', 'FUNCTION idem_outbox_renew',
            'FUNCTION idem_outbox_redrive']
        WHEN 'reconcile' THEN ARRAY['FUNCTION idem_reconcile_next', 'FUNCTION idem_resolve', 'FUNCTION idem_escalate', 'FUNCTION idem_renew', 'FUNCTION idem_add_evidence',
            'FUNCTION idem_status', 'FUNCTION idem_status_by_id', 'FUNCTION idem_action_id']
        WHEN 'approve' THEN ARRAY['FUNCTION idem_approve', 'FUNCTION idem_reject', 'FUNCTION idem_withdraw',
            'FUNCTION idem_state_word', 'FUNCTION idem_sees_tenant', 'TABLE idem_proposals']
        WHEN 'operate' THEN ARRAY['FUNCTION idem_register_action_type', 'FUNCTION idem_sweep', 'FUNCTION idem_add_up_counts',
            'PROCEDURE idem_sweep_all', 'FUNCTION idem_acknowledge_clock', 'FUNCTION idem_decide', 'FUNCTION idem_reopen', 'FUNCTION idem_compensate',
            'FUNCTION idem_hold', 'FUNCTION idem_unhold', 'FUNCTION idem_bind_tenant', 'FUNCTION idem_unbind_tenant',
            'FUNCTION idem_after_restore', 'FUNCTION idem_create_outbox', 'FUNCTION idem_make_outbox', 'FUNCTION idem_register_outbox']
        WHEN 'read' THEN ARRAY['FUNCTION idem_state_word', 'FUNCTION idem_sees_tenant', 'FUNCTION idem_preloaded', 'FUNCTION idem_when_unknown', 'TABLE idem_policy', 'TABLE idem_actions', 'TABLE idem_attempts', 'TABLE idem_unresolved',
            'TABLE idem_overdue', 'TABLE idem_compensations', 'TABLE idem_lineage', 'TABLE idem_metrics', 'FUNCTION idem_live_counts', 'TABLE idem_conflicts', 'FUNCTION idem_recent_conflicts', 'FUNCTION idem_trace', 'TABLE idem_worker_status', 'TABLE idem_holds', 'TABLE idem_bindings']
    END;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_capability IS 'What a capability consists of; NULL for a word that is none.';

CREATE FUNCTION @extschema@.idem_grant(role regrole, VARIADIC capabilities text[]) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    capability text;
    object text;
BEGIN
    PERFORM @extschema@.idem_check_capabilities(role, capabilities);
    EXECUTE format('GRANT USAGE ON SCHEMA %s TO %s', '@extschema@', role);
    FOREACH capability IN ARRAY capabilities LOOP
        FOREACH object IN ARRAY @extschema@.idem_capability(capability) LOOP
            EXECUTE format('GRANT %s ON %s %s.%I TO %s', CASE split_part(object, ' ', 1) WHEN 'TABLE' THEN 'SELECT'
                ELSE 'EXECUTE' END, split_part(object, ' ', 1), '@extschema@', split_part(object, ' ', 2), role);
        END LOOP;
    END LOOP;
    RETURN 'granted';
END
$$;
COMMENT ON FUNCTION @extschema@.idem_grant IS 'Gives a role capabilities: execute, relay, reconcile, approve, operate, read. Returns granted. Runs with the caller''s own right to grant. Errors: 22004, 22023, 42501.';

CREATE FUNCTION @extschema@.idem_revoke(role regrole, VARIADIC capabilities text[]) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    capability text;
    object text;
    kept text[];
BEGIN
    PERFORM @extschema@.idem_check_capabilities(role, capabilities);
    -- What another capability of the role also holds stays.
    SELECT coalesce(array_agg(o), '{}') INTO kept
    FROM unnest(ARRAY['execute', 'relay', 'reconcile', 'approve', 'operate', 'read']) AS held(c),
        LATERAL unnest(@extschema@.idem_capability(held.c)) AS o
    WHERE held.c <> ALL (capabilities) AND @extschema@.idem_has_capability(role, held.c);
    FOREACH capability IN ARRAY capabilities LOOP
        FOREACH object IN ARRAY @extschema@.idem_capability(capability) LOOP
            CONTINUE WHEN object = ANY (kept);
            EXECUTE format('REVOKE %s ON %s %s.%I FROM %s', CASE split_part(object, ' ', 1) WHEN 'TABLE' THEN 'SELECT'
                ELSE 'EXECUTE' END, split_part(object, ' ', 1), '@extschema@', split_part(object, ' ', 2), role);
        END LOOP;
    END LOOP;
    RETURN 'revoked';
END
$$;
COMMENT ON FUNCTION @extschema@.idem_revoke IS 'Takes capabilities from a role; what another of its capabilities also holds stays. Returns revoked. Errors: 22004, 22023, 42501.';

CREATE FUNCTION @extschema@.idem_has_capability(role regrole, capability text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    object text;
    name text;
BEGIN
    FOREACH object IN ARRAY @extschema@.idem_capability(capability) LOOP
        name := split_part(object, ' ', 2);
        IF NOT EXISTS (
            SELECT FROM pg_proc AS p, LATERAL aclexplode(p.proacl) AS a
            WHERE p.pronamespace = '@extschema@'::regnamespace AND p.proname = name AND a.grantee = role
            UNION ALL
            SELECT FROM pg_class AS c, LATERAL aclexplode(c.relacl) AS a
            WHERE c.relnamespace = '@extschema@'::regnamespace AND c.relname = name AND a.grantee = role
        ) THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_has_capability IS 'True when a role was given all of a capability itself.';

CREATE FUNCTION @extschema@.idem_check_capabilities(role regrole, capabilities text[]) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF role IS NULL OR capabilities IS NULL OR array_position(capabilities, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'role and capabilities must not be null' USING ERRCODE = '22004',
            HINT = 'Name a role and at least one of execute, relay, reconcile, approve, operate, read.';
    END IF;
    IF cardinality(capabilities) = 0 OR EXISTS (
        SELECT FROM unnest(capabilities) AS c WHERE @extschema@.idem_capability(c) IS NULL
    ) THEN
        RAISE EXCEPTION 'a capability is not one of the known words' USING ERRCODE = '22023',
            HINT = 'Use execute, relay, reconcile, approve, operate or read.';
    END IF;
    RETURN true;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_check_capabilities IS 'Refuses words that are no capability. Errors: 22004, 22023.';

-- Functions are executable by PUBLIC unless that is taken away.
DO $$
DECLARE
    routine regprocedure;
BEGIN
    FOR routine IN
        SELECT d.objid FROM pg_catalog.pg_depend AS d
        JOIN pg_catalog.pg_extension AS e ON e.oid OPERATOR(pg_catalog.=) d.refobjid
        WHERE d.deptype OPERATOR(pg_catalog.=) 'e' AND e.extname OPERATOR(pg_catalog.=) 'pg_idem'
            AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
            AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', routine);
    END LOOP;
END
$$;
