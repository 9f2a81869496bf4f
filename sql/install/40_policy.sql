-- Action types.

CREATE FUNCTION @extschema@.idem_microseconds(parameter text, value interval, fallback interval) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seconds numeric := extract(epoch FROM coalesce(value, fallback));
BEGIN
    IF seconds < 0 OR seconds > 315576000 THEN
        RAISE EXCEPTION '% must lie between zero and ten years', parameter USING ERRCODE = '22023',
            HINT = 'Leave it out for the default.';
    END IF;
    RETURN round(seconds * 1000000)::bigint;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_microseconds IS 'A length of time as the tables keep it; the fallback where it is NULL. Errors: 22023.';

CREATE FUNCTION @extschema@.idem_register_action_type(
    name text, class text, effect text = 'external', lease interval = '60 s', max_lease interval = '1 h',
    ttl interval = '30 days', tombstone_ttl interval = '90 days', max_attempts integer = 5,
    backoff_base interval = '1 s', backoff_cap interval = '5 min', settle_delay interval = '60 s',
    probe_interval interval = '60 s', probes_required integer = 2, resolve_deadline interval = '24 h'
) RETURNS @extschema@.idem_action_type
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    made @extschema@.idem_action_type;
    old @extschema@.idem_action_type;
BEGIN
    IF $1 IS NULL OR $2 IS NULL THEN
        RAISE EXCEPTION 'name and class must not be null' USING ERRCODE = '22004',
            HINT = 'Only the other parameters have defaults.';
    END IF;
    IF length($1) NOT BETWEEN 1 AND 100 THEN
        RAISE EXCEPTION 'name has % characters; it must have 1 to 100', length($1)
            USING ERRCODE = '22023', HINT = 'Shorten it.';
    END IF;
    IF $1 ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'name holds control characters' USING ERRCODE = '22023',
            HINT = 'Use a plain word, like refund.create.';
    END IF;
    IF $2 NOT IN ('read_only', 'idempotent_mutation', 'deduplicated_creation', 'reversible', 'irreversible') THEN
        RAISE EXCEPTION 'class is not one of the known words' USING ERRCODE = '22023',
            HINT = 'Use read_only, idempotent_mutation, deduplicated_creation, reversible or irreversible.';
    END IF;
    IF $3 NOT IN ('local', 'external') THEN
        RAISE EXCEPTION 'effect must be local or external' USING ERRCODE = '22023',
            HINT = 'local: in this database, in the transaction that reserved it. Everything else is external.';
    END IF;
    IF max_attempts < 1 OR probes_required < 1 THEN
        RAISE EXCEPTION 'max_attempts and probes_required must be at least 1' USING ERRCODE = '22023',
            HINT = 'Leave them out for 5 attempts and 2 probes.';
    END IF;
    made := ROW(
        $1, 0, $2, coalesce($3, 'external'),
        @extschema@.idem_microseconds('lease', lease, '60 s'),
        @extschema@.idem_microseconds('max_lease', max_lease, '1 h'),
        @extschema@.idem_microseconds('ttl', ttl, '30 days'),
        @extschema@.idem_microseconds('tombstone_ttl', tombstone_ttl, '90 days'),
        coalesce(max_attempts, 5),
        @extschema@.idem_microseconds('backoff_base', backoff_base, '1 s'),
        @extschema@.idem_microseconds('backoff_cap', backoff_cap, '5 min'),
        -- Approval, dispatch marks and the provider's key window have no parameters yet: the careful values.
        false, 3600000000, 'role', false, 0,
        @extschema@.idem_microseconds('settle_delay', settle_delay, '60 s'),
        @extschema@.idem_microseconds('probe_interval', probe_interval, '60 s'),
        coalesce(probes_required, 2),
        @extschema@.idem_microseconds('resolve_deadline', resolve_deadline, '24 h'),
        NULL, NULL, clock_timestamp(), session_user
    )::@extschema@.idem_action_type;
    IF made.lease = 0 OR made.max_lease < made.lease THEN
        RAISE EXCEPTION 'lease must be greater than zero and not longer than max_lease' USING ERRCODE = '22023',
            HINT = 'Name both, or leave both out for 60 s and 1 h.';
    END IF;
    IF made.backoff_base = 0 OR made.backoff_cap < made.backoff_base THEN
        RAISE EXCEPTION 'backoff_base must be greater than zero and not longer than backoff_cap'
            USING ERRCODE = '22023', HINT = 'Name both, or leave both out for 1 s and 5 min.';
    END IF;
    -- One registration of a name at a time, so that its versions follow one another.
    PERFORM pg_advisory_xact_lock(hashtextextended('pg_idem/action_type/' || $1, 0));
    SELECT t.* INTO old FROM @extschema@.idem_action_type AS t
        WHERE t.name = $1 ORDER BY t.policy_version DESC LIMIT 1;
    IF to_jsonb(old) - '{policy_version,registered_at,registered_by}'::text[]
        = to_jsonb(made) - '{policy_version,registered_at,registered_by}'::text[] THEN
        RETURN old;
    END IF;
    INSERT INTO @extschema@.idem_action_type
        SELECT (jsonb_populate_record(made, jsonb_build_object('policy_version', coalesce(old.policy_version, 0) + 1))).*
        RETURNING * INTO made;
    RETURN made;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_register_action_type IS 'Registers an action type, or changes it: each change is a new policy_version. The same again changes nothing. Returns the row in force. Errors: 22004, 22023.';
