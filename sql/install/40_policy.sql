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
    backoff_base interval = '1 s', backoff_cap interval = '5 min', requires_approval boolean = NULL,
    approval_ttl interval = '1 h', distinct_approver text = 'role', marks_dispatch boolean = NULL,
    provider_key_window interval = '0', settle_delay interval = '60 s', probe_interval interval = '60 s',
    probes_required integer = 2, resolve_deadline interval = '24 h', lookup_hint text = NULL,
    compensation_type text = NULL
) RETURNS @extschema@.idem_action_type
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    made @extschema@.idem_action_type;
    old @extschema@.idem_action_type;
    -- What cannot be undone is looked at by two people before, and marked when it may have left.
    careful boolean := $2 = 'irreversible' AND coalesce($3, 'external') <> 'local';
    approval boolean := coalesce(requires_approval, careful);
BEGIN
    IF NOT @extschema@.idem_sees_tenant(NULL) THEN
        RAISE EXCEPTION 'a role that is bound to tenants cannot do what concerns all of them' USING ERRCODE = '42501',
            HINT = 'Use a role without bindings.';
    END IF;
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
        approval,
        @extschema@.idem_microseconds('approval_ttl', approval_ttl, '1 h'),
        coalesce(distinct_approver, 'role'),
        coalesce(marks_dispatch, careful OR approval),
        @extschema@.idem_microseconds('provider_key_window', provider_key_window, '0'),
        @extschema@.idem_microseconds('settle_delay', settle_delay, '60 s'),
        @extschema@.idem_microseconds('probe_interval', probe_interval, '60 s'),
        coalesce(probes_required, 2),
        @extschema@.idem_microseconds('resolve_deadline', resolve_deadline, '24 h'),
        lookup_hint, compensation_type, clock_timestamp(), session_user
    )::@extschema@.idem_action_type;
    IF made.lease = 0 OR made.max_lease < made.lease THEN
        RAISE EXCEPTION 'lease must be greater than zero and not longer than max_lease' USING ERRCODE = '22023',
            HINT = 'Name both, or leave both out for 60 s and 1 h.';
    END IF;
    IF made.backoff_base = 0 OR made.backoff_cap < made.backoff_base THEN
        RAISE EXCEPTION 'backoff_base must be greater than zero and not longer than backoff_cap'
            USING ERRCODE = '22023', HINT = 'Name both, or leave both out for 1 s and 5 min.';
    END IF;
    IF made.requires_approval AND NOT made.marks_dispatch THEN
        RAISE EXCEPTION 'a type that requires approval must mark its dispatch' USING ERRCODE = '22023',
            HINT = 'Leave marks_dispatch out: a withdrawal could not stop an attempt that marks nothing.';
    END IF;
    IF made.effect = 'local' AND made.marks_dispatch THEN
        RAISE EXCEPTION 'a local effect cannot require approval or mark its dispatch' USING ERRCODE = '22023',
            HINT = 'It is done in the transaction that reserved it; idem_dispatch is for what leaves the database.';
    END IF;
    IF made.distinct_approver NOT IN ('role', 'name', 'none') THEN
        RAISE EXCEPTION 'distinct_approver must be role, name or none' USING ERRCODE = '22023',
            HINT = 'role: proposer and approver are different roles. name: the names given for them differ.';
    END IF;
    IF made.approval_ttl = 0 THEN
        RAISE EXCEPTION 'approval_ttl must be greater than zero' USING ERRCODE = '22023',
            HINT = 'Leave it out for 1 h.';
    END IF;
    IF made.provider_key_window > 0 AND $2 <> 'deduplicated_creation' THEN
        RAISE EXCEPTION 'provider_key_window is for the class deduplicated_creation only' USING ERRCODE = '22023',
            HINT = 'It says how long the provider recognises a repeated key; other classes repeat always or never.';
    END IF;
    IF length(lookup_hint) > 255 OR lookup_hint !~ '[^[:space:]]' THEN
        RAISE EXCEPTION 'lookup_hint must have 1 to 255 characters' USING ERRCODE = '22023',
            HINT = 'Say in a line where to look, like: provider console, search by provider_key.';
    END IF;
    IF compensation_type IS NOT NULL AND (length(compensation_type) NOT BETWEEN 1 AND 100
        OR compensation_type ~ '[[:cntrl:]]' OR compensation_type = $1 OR $2 = 'read_only') THEN
        RAISE EXCEPTION 'compensation_type must be the name of another type, and not for the class read_only'
            USING ERRCODE = '22023', HINT = 'Name the type that undoes this one, like refund.create for charge.create.';
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
COMMENT ON FUNCTION @extschema@.idem_register_action_type IS 'Registers an action type, or changes it: each change is a new policy_version. The same again changes nothing. Left out, requires_approval and marks_dispatch are on for the class irreversible. Returns the row in force. Errors: 22004, 22023, 42501.';

CREATE FUNCTION @extschema@.idem_when_unknown(class text, provider_key_window bigint) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET intervalstyle = 'postgres' AS $$
    SELECT CASE WHEN class IN ('read_only', 'idempotent_mutation') THEN 'repeat'
        WHEN class = 'deduplicated_creation' AND provider_key_window > 0
            THEN 'repeat with the same provider_key within ' || justify_hours(make_interval(secs => provider_key_window / 1e6))
                || ', then reconcile'
        WHEN class = 'irreversible' THEN 'reconcile; a person decides on another try'
        ELSE 'reconcile' END
$$;
COMMENT ON FUNCTION @extschema@.idem_when_unknown IS 'What a type does while an outcome is open and nobody is running, in words.';

CREATE VIEW @extschema@.idem_policy WITH (security_barrier) AS
SELECT t.name, t.policy_version, t.class,
    @extschema@.idem_when_unknown(t.class, t.provider_key_window) AS when_unknown,
    t.effect, t.requires_approval, t.marks_dispatch, t.distinct_approver, t.compensation_type, t.lookup_hint,
    t.max_attempts,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.lease OPERATOR(pg_catalog./) 1e6)) AS lease,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.max_lease OPERATOR(pg_catalog./) 1e6)) AS max_lease,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.backoff_base OPERATOR(pg_catalog./) 1e6)) AS backoff_base,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.backoff_cap OPERATOR(pg_catalog./) 1e6)) AS backoff_cap,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.approval_ttl OPERATOR(pg_catalog./) 1e6)) AS approval_ttl,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.provider_key_window OPERATOR(pg_catalog./) 1e6)) AS provider_key_window,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.settle_delay OPERATOR(pg_catalog./) 1e6)) AS settle_delay,
    t.probes_required,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.probe_interval OPERATOR(pg_catalog./) 1e6)) AS probe_interval,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.resolve_deadline OPERATOR(pg_catalog./) 1e6)) AS resolve_deadline,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.ttl OPERATOR(pg_catalog./) 1e6)) AS ttl,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.tombstone_ttl OPERATOR(pg_catalog./) 1e6)) AS tombstone_ttl,
    t.registered_at, t.registered_by
FROM @extschema@.idem_action_type AS t
WHERE t.policy_version OPERATOR(pg_catalog.=) (
    SELECT pg_catalog.max(l.policy_version) FROM @extschema@.idem_action_type AS l
    WHERE l.name OPERATOR(pg_catalog.=) t.name);
COMMENT ON VIEW @extschema@.idem_policy IS 'The policy sheet: each action type as it is in force, what a repeated effect would do and what happens while an outcome is open.';
