-- Functions of the library. All of them work below the executor on the extension's own tables, so neither
-- search_path nor row-level security nor a privilege of the caller has a say: EXECUTE is the one gate, and nothing is
-- granted to PUBLIC (80_grants.sql).

CREATE FUNCTION @extschema@.idem_reserve(
    key text, request jsonb = NULL, tenant text = '', action_type text = 'default', actor text = NULL,
    target text = NULL, fingerprint bytea = NULL, attempt_id uuid = NULL, lease_seconds double precision = NULL,
    ttl_seconds double precision = NULL, wait_seconds double precision = NULL, can_reconcile boolean = false,
    worker text = NULL, workflow_id text = NULL, session_id text = NULL, payload_version text = NULL,
    policy_version integer = NULL, store_request boolean = NULL
) RETURNS @extschema@.idem_reservation
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_reserve IS 'Asks for an action. Grants it to one attempt at a time, replays what was done, or says why not. Write SELECT * FROM idem_reserve(...); COMMIT before an effect outside this database. Errors: 22004, 22023, 25006, 40001, 42501, 42704, 55000, ID008.';

CREATE FUNCTION @extschema@.idem_commit(
    action_id uuid, attempt_id uuid, response jsonb = NULL, resource_id text = NULL, external_request_id text = NULL,
    on_lost text = 'error'
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_commit IS 'The effect happened: keeps its result for replay. Returns committed, already_committed, discrepancy or superseded. Errors: 22004, 22023, 25006, 40001, 55000, ID002, ID003, ID004.';

CREATE FUNCTION @extschema@.idem_mark_unknown(
    action_id uuid, attempt_id uuid, reason text = NULL, external_request_id text = NULL
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_mark_unknown IS 'The caller cannot tell whether the effect happened. Returns the state. Errors: 22004, 22023, 25006, 40001, ID002, ID003, ID004.';

CREATE FUNCTION @extschema@.idem_fail(
    action_id uuid, attempt_id uuid, proof text, error jsonb = NULL, retryable boolean = false,
    retry_after_seconds double precision = NULL, new_provider_key boolean = false
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_fail IS 'The effect definitely did not happen; proof is not_sent or refused. A time-out proves nothing: use idem_mark_unknown. Returns the state. Errors: 22004, 22023, 25006, 40001, ID002, ID003, ID004, ID006.';

CREATE FUNCTION @extschema@.idem_renew(action_id uuid, attempt_id uuid, lease_seconds double precision = NULL)
RETURNS timestamptz
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_renew IS 'The attempt needs more time. Returns the end of its lease. Errors: 22004, 22023, 25006, 40001, ID002, ID003, ID004, ID006.';

CREATE FUNCTION @extschema@.idem_release(action_id uuid, attempt_id uuid) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_release IS 'The attempt gives up before the effect; it does not count. Returns the state. Errors: 22004, 25006, 40001, ID002, ID003, ID004, ID006.';

CREATE FUNCTION @extschema@.idem_dispatch(action_id uuid, attempt_id uuid) RETURNS uuid
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_dispatch IS 'The last gate before the effect: marks that it may leave from now on and returns the provider_key to send with it. Passes once for each attempt, and only as a statement of its own outside a transaction block. Errors: 22004, 25001, 25006, ID002, ID003, ID004, ID005, ID006, ID007, ID008.';

CREATE FUNCTION @extschema@.idem_add_evidence(
    action_id uuid, attempt_id uuid, finding text, response jsonb = NULL, resource_id text = NULL,
    external_request_id text = NULL, note text = NULL
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_add_evidence IS 'Keeps what an attempt saw of the effect, also after it lost the action. Returns recorded or discrepancy. Errors: 22004, 22023, 25006, 40001, ID002, ID003, ID004.';

CREATE FUNCTION @extschema@.idem_resolve(
    action_id uuid, attempt_id uuid, finding text, response jsonb = NULL, resource_id text = NULL,
    external_request_id text = NULL, evidence jsonb = NULL, candidates jsonb = NULL,
    next_probe_seconds double precision = NULL
) RETURNS @extschema@.idem_resolution
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_resolve IS 'A reconciling attempt says what it found: applied, partially_applied, not_applied, ambiguous or inconclusive. Errors: 22004, 22023, 25006, 40001, ID002, ID003, ID004.';

CREATE FUNCTION @extschema@.idem_reconcile_next(
    max integer = 10, lease_seconds double precision = NULL, action_type text = NULL, tenant text = NULL,
    worker text = NULL
) RETURNS SETOF @extschema@.idem_reconciliation
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10 AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_reconcile_next IS 'Leases due unknown actions to the caller, the nearest deadline first, each to one reconciler at a time. COMMIT before looking anything up; end each with idem_resolve. Errors: 0A000, 22023, 25006, 42501, 55000, ID008.';

CREATE FUNCTION @extschema@.idem_due(
    max integer = 10, lease_seconds double precision = NULL, action_type text = NULL, tenant text = NULL,
    worker text = NULL
) RETURNS SETOF @extschema@.idem_due_action
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10 AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_due IS 'Grants the caller actions whose request is stored and that may start now: retryable, approved, or repeatable ones whose attempt died. COMMIT before the effects; end each as after idem_reserve. Errors: 0A000, 22023, 25006, 42501, 55000, ID008.';

CREATE FUNCTION @extschema@.idem_escalate(action_id uuid, note text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_escalate IS 'Asks a person to look at an unknown action: reserve answers review from now on. Returns the state. Errors: 22004, 22023, 25006, 40001, ID003, ID004.';

CREATE FUNCTION @extschema@.idem_decide(
    action_id uuid, finding text, note text, response jsonb = NULL, resource_id text = NULL
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_decide IS 'A person decides: applied, not_applied or retry, with a note. Closes every open question about the action. Returns the state. Errors: 22004, 22023, 25006, 40001, 42501, ID003, ID004.';

CREATE FUNCTION @extschema@.idem_reopen(action_id uuid, note text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_reopen IS 'A person gives a failed or rejected action another chance, with the full number of attempts. Returns the state. Errors: 22004, 22023, 25006, 40001, 42501, ID003, ID004, ID007.';

CREATE FUNCTION @extschema@.idem_status(key text, tenant text = '') RETURNS @extschema@.idem_action_status
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_status IS 'Shows where an action stands, by its name. Errors: 22004, 22023, 42501.';

CREATE FUNCTION @extschema@.idem_status_by_id(action_id uuid) RETURNS @extschema@.idem_action_status
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_status_by_id IS 'Shows where an action stands, by its id. Errors: 22004.';

CREATE FUNCTION @extschema@.idem_action_id(key text, tenant text = '') RETURNS uuid
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_action_id IS 'The id of an action: a uuid of version 8 cut from SHA-256 over "pg_idem/action/1", then tenant and key, each as a 4-byte big-endian length and its UTF-8 bytes. Errors: 22004, 22023.';

CREATE FUNCTION @extschema@.idem_key(VARIADIC parts text[]) RETURNS text
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_key IS 'An opaque key from parts; parts are hashed with their lengths, so that no two lists of parts meet. Errors: 22004, 22023.';

CREATE FUNCTION @extschema@.idem_canonical(request jsonb) RETURNS text
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_canonical IS 'The text that idem_fingerprint digests: RFC 8785, with numbers kept exact. Errors: 0A000, 22023.';

CREATE FUNCTION @extschema@.idem_fingerprint(request jsonb) RETURNS bytea
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_fingerprint IS 'SHA-256 of the document''s canonical text. jsonb has dropped earlier ones of duplicate members before this sees it. Errors: 0A000, 22023.';

CREATE FUNCTION @extschema@.idem_fingerprint_text(document text) RETURNS bytea
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_fingerprint_text IS 'SHA-256 of the canonical text of a document read strictly: duplicate members, lone surrogates, NUL and trailing text are errors. Errors: 22P02, 22P05, 0A000.';

CREATE FUNCTION @extschema@.idem_action_fingerprint(
    request_fingerprint bytea, action_type text, tenant text = '', actor text = NULL, target text = NULL
) RETURNS bytea
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_action_fingerprint IS 'The digest an action stores: of the request''s fingerprint and of its scope. Errors: 22004, 22023.';

CREATE FUNCTION @extschema@.idem_sweep(max_rows integer = 1000) RETURNS @extschema@.idem_swept
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_sweep IS 'Does what is due by the clock alone, in one batch: dead attempts become unknown, ended actions past their retention lose their content, old tombstones go. Errors: 22023, 25006.';

CREATE PROCEDURE @extschema@.idem_sweep_all()
LANGUAGE plpgsql AS $$
DECLARE
    swept @extschema@.idem_swept;
BEGIN
    LOOP
        -- A batch that a crash forgets is done again: nobody needs to wait for its flush.
        PERFORM pg_catalog.set_config('synchronous_commit', 'off', true);
        swept := @extschema@.idem_sweep(1000);
        PERFORM @extschema@.idem_add_up_counts();
        COMMIT;
        EXIT WHEN swept.visited OPERATOR(pg_catalog.<) 1000;
    END LOOP;
END
$$;
COMMENT ON PROCEDURE @extschema@.idem_sweep_all IS 'Calls idem_sweep until nothing is left, with a COMMIT after each batch. Not inside a transaction block (2D000).';

CREATE FUNCTION @extschema@.idem_cache_changed() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_cache_changed IS 'Trigger: has every session read a table again that sessions keep in memory.';

CREATE TRIGGER idem_cache_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON @extschema@.idem_action_type
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_cache_changed();
CREATE TRIGGER idem_cache_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON @extschema@.idem_installation
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_cache_changed();

CREATE FUNCTION @extschema@.idem_refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME
        USING ERRCODE = '42501', HINT = coalesce(TG_ARGV[0], 'History leaves with its action, by idem_sweep.');
END
$$;
COMMENT ON FUNCTION @extschema@.idem_refuse_change IS 'Trigger: refuses to change what was written down.';
CREATE TRIGGER idem_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON @extschema@.idem_attempt
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_refuse_change();
CREATE TRIGGER idem_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON @extschema@.idem_event
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_refuse_change();

-- The library writes below the executor, so triggers fire for rows that are loaded: by a restore.

CREATE FUNCTION @extschema@.idem_rows_loaded() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE @extschema@.idem_cursor SET visited_to = '-infinity', horizon_at = NULL, horizon_xid = NULL;
    UPDATE @extschema@.idem_worker_visit SET paused_until = clock_timestamp() + interval '5 min';
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_rows_loaded IS 'Trigger: rows that were loaded may lie behind the sweep''s cursors, so these start over; and more tables may follow, so the background worker holds off for five minutes.';
CREATE TRIGGER idem_rows_loaded BEFORE INSERT ON @extschema@.idem_action
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_rows_loaded();
CREATE TRIGGER idem_rows_loaded_all AFTER INSERT ON @extschema@.idem_action
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_rows_loaded();
CREATE TRIGGER idem_rows_loaded AFTER INSERT ON @extschema@.idem_open
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_rows_loaded();
CREATE TRIGGER idem_rows_loaded AFTER INSERT ON @extschema@.idem_attempt
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_rows_loaded();
CREATE TRIGGER idem_rows_loaded AFTER INSERT ON @extschema@.idem_event
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_rows_loaded();

CREATE FUNCTION @extschema@.idem_installation_loaded() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM @extschema@.idem_installation;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_installation_loaded IS 'Trigger: an identity that was loaded takes the place of the one that was there.';
CREATE TRIGGER idem_installation_loaded BEFORE INSERT ON @extschema@.idem_installation
    FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_installation_loaded();
