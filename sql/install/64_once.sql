-- Local work in one call: reserve, carry out, commit, in the caller's transaction and with the caller's rights.

CREATE FUNCTION @extschema@.idem_once_call(routine regprocedure, action_type text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    called pg_proc;
    policy @extschema@.idem_action_type;
BEGIN
    IF $1 IS NULL OR $2 IS NULL THEN
        RAISE EXCEPTION 'routine and action_type must not be null' USING ERRCODE = '22004',
            HINT = 'Name a function that takes one jsonb and returns jsonb, as in ''app.credit(jsonb)''.';
    END IF;
    SELECT p.* INTO called FROM pg_proc AS p WHERE p.oid = $1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no such routine' USING ERRCODE = '42704',
            HINT = 'Name a function that takes one jsonb and returns jsonb, as in ''app.credit(jsonb)''.';
    END IF;
    IF called.prokind <> 'f' OR called.proretset OR called.prorettype <> 'jsonb'::regtype OR called.provariadic <> 0
        OR called.pronargs <> 1 OR called.proargtypes[0] <> 'jsonb'::regtype THEN
        RAISE EXCEPTION 'routine % is not a function that takes one jsonb and returns jsonb', $1
            USING ERRCODE = '22023', HINT = 'It is called with the request; what it returns is the response.';
    END IF;
    SELECT t.* INTO policy FROM @extschema@.idem_action_type AS t
    WHERE t.name = $2 ORDER BY t.policy_version DESC LIMIT 1;
    IF policy.effect <> 'local' OR policy.class = 'irreversible' OR policy.marks_dispatch THEN
        RAISE EXCEPTION 'idem_once is for local effects, and the action type is % and %', policy.effect, policy.class
            USING ERRCODE = '55000', HINT = 'Use idem_reserve, COMMIT, the call, and idem_commit; or register a type with effect => ''local''.';
    END IF;
    RETURN format('SELECT %I.%I($1)', (SELECT n.nspname FROM pg_namespace AS n WHERE n.oid = called.pronamespace), called.proname);
END
$$;
COMMENT ON FUNCTION @extschema@.idem_once_call IS 'The statement by which idem_once calls a routine; refuses one of another shape, and types whose effect is not local. Errors: 22004, 22023, 42704, 55000.';

CREATE FUNCTION @extschema@.idem_once(
    key text, request jsonb, routine regprocedure, tenant text = '', action_type text = 'default', actor text = NULL,
    target text = NULL, ttl_seconds double precision = NULL, wait_seconds double precision = NULL, worker text = NULL,
    workflow_id text = NULL, session_id text = NULL, payload_version text = NULL, policy_version integer = NULL,
    store_request boolean = NULL
) RETURNS @extschema@.idem_reservation
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE AS $$
#variable_conflict use_column
DECLARE
    -- No SET clause: the routine runs with the caller's search_path, as with his rights. Every name here is qualified.
    statement text := @extschema@.idem_once_call($3, $5);
    reserved @extschema@.idem_reservation;
    result jsonb;
BEGIN
    IF NOT pg_catalog.has_function_privilege($3::pg_catalog.oid, 'EXECUTE') THEN
        RAISE EXCEPTION 'permission denied for function %', $3 USING ERRCODE = '42501',
            HINT = 'The routine runs with the rights of whoever calls idem_once: GRANT EXECUTE on it to that role.';
    END IF;
    SELECT r.* INTO reserved FROM @extschema@.idem_reserve(
        key => $1, request => $2, tenant => $4, action_type => $5, actor => $6, target => $7, ttl_seconds => $8,
        wait_seconds => $9, worker => $10, workflow_id => $11, session_id => $12, payload_version => $13,
        policy_version => $14, store_request => $15) AS r;
    IF reserved.granted THEN
        EXECUTE statement INTO result USING $2;
        PERFORM @extschema@.idem_commit(reserved.action_id, reserved.attempt_id, result);
        -- It is done: nothing is left to carry out, and nobody owns an attempt.
        reserved := (
            SELECT ROW(false, reserved.decision, reserved.action_id, NULL, NULL, reserved.attempt, s.state, NULL, NULL,
                result, s.response_state, NULL, NULL, NULL, NULL)::@extschema@.idem_reservation
            FROM @extschema@.idem_status_by_id(reserved.action_id) AS s);
    END IF;
    RETURN reserved;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_once IS 'Carries out an action in this database: reserves it, calls routine(request) with the caller''s rights, keeps what it returns as the response, all in the caller''s transaction; duplicates get the response. decision is execute where this call did it, else what idem_reserve says; granted is never true. Errors: those of the routine, 22004, 22023, 25006, 40001, 42501, 42704, 55000, ID002, ID003, ID004, ID008.';
