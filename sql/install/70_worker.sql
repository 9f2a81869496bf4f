-- The background worker's side in a database. Not dumped: it tells of this server's worker only.

CREATE TABLE @extschema@.idem_worker_visit (
    last_visit_at timestamptz,
    next_visit_at timestamptz,
    visited       bigint NOT NULL,
    unknown       bigint NOT NULL,
    scrubbed      bigint NOT NULL,
    removed       bigint NOT NULL,
    last_error    text,
    last_error_at timestamptz,
    paused_until  timestamptz,
    clock_jump_at timestamptz
) USING heap WITH (fillfactor = 10);
-- As of idem_counted.
ALTER TABLE @extschema@.idem_worker_visit REPLICA IDENTITY FULL;
COMMENT ON TABLE @extschema@.idem_worker_visit IS 'What the background worker did in this database since the extension was made: one row.';
COMMENT ON COLUMN @extschema@.idem_worker_visit.clock_jump_at IS 'When a visit came more than a day after the one before; retention rests since, until idem_acknowledge_clock.';
INSERT INTO @extschema@.idem_worker_visit (visited, unknown, scrubbed, removed) VALUES (0, 0, 0, 0);
REVOKE ALL ON TABLE @extschema@.idem_worker_visit FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_preloaded() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT current_setting('shared_preload_libraries') ~ '\mpg_idem\M'
$$;
COMMENT ON FUNCTION @extschema@.idem_preloaded IS 'True where the library is preloaded, so that there is a background worker.';

CREATE VIEW @extschema@.idem_worker_status WITH (security_barrier) AS
SELECT v.last_visit_at, v.next_visit_at, v.visited, v.unknown, v.scrubbed, v.removed, v.last_error, v.last_error_at,
    v.paused_until, v.clock_jump_at, @extschema@.idem_preloaded() AS preloaded
FROM @extschema@.idem_worker_visit AS v;
COMMENT ON VIEW @extschema@.idem_worker_status IS 'The background worker in this database: when it came, when it comes again, what it did, and its last error. preloaded is false where there is no worker: schedule idem_sweep_all then.';

CREATE FUNCTION @extschema@.idem_sweep_lapses(max_rows integer) RETURNS @extschema@.idem_swept
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_sweep_lapses IS 'A sweep that scrubs and removes nothing. For the worker, while retention rests. Errors: 22023, 25006.';

CREATE FUNCTION @extschema@.idem_acknowledge_clock() RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT @extschema@.idem_sees_tenant(NULL) THEN
        RAISE EXCEPTION 'a role that is bound to tenants cannot do what concerns all of them' USING ERRCODE = '42501',
            HINT = 'Use a role without bindings.';
    END IF;
    UPDATE @extschema@.idem_worker_visit SET clock_jump_at = NULL WHERE clock_jump_at IS NOT NULL;
    IF NOT FOUND THEN
        RETURN 'nothing_to_acknowledge';
    END IF;
    -- What was put off by the time of that clock is looked at anew.
    UPDATE @extschema@.idem_open AS o SET visit_at = clock_timestamp()
    WHERE o.queue = 'expiry' AND o.visit_at > clock_timestamp();
    RETURN 'acknowledged';
END
$$;
COMMENT ON FUNCTION @extschema@.idem_acknowledge_clock IS 'The clock is right: retention goes on after a visit of the worker that came more than a day after the one before. Returns acknowledged or nothing_to_acknowledge. Errors: 42501.';

CREATE FUNCTION @extschema@.idem_visit(max_rows integer, naptime double precision) RETURNS @extschema@.idem_swept
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    swept @extschema@.idem_swept := ROW(0, 0, 0, 0);
    failure text;
    visit @extschema@.idem_worker_visit := (SELECT v FROM @extschema@.idem_worker_visit AS v);
    jumped boolean := visit.clock_jump_at IS NOT NULL;
BEGIN
    -- What a wrong clock lets expire would be gone for good, so the first visit of such a day takes nothing away.
    IF NOT jumped AND clock_timestamp() > visit.last_visit_at + interval '1 day' THEN
        jumped := true;
        UPDATE @extschema@.idem_worker_visit SET clock_jump_at = clock_timestamp();
        RAISE LOG 'pg_idem worker: no visit for more than a day, or the clock jumped: retention rests until idem_acknowledge_clock is called';
    END IF;
    -- Rows are being loaded: what is not there yet cannot be judged.
    IF visit.paused_until > clock_timestamp() THEN
        UPDATE @extschema@.idem_worker_visit SET
            last_visit_at = clock_timestamp(), next_visit_at = clock_timestamp() + make_interval(secs => naptime);
        RETURN swept;
    END IF;
    BEGIN
        swept := CASE WHEN jumped THEN @extschema@.idem_sweep_lapses(max_rows) ELSE @extschema@.idem_sweep(max_rows) END;
        PERFORM @extschema@.idem_add_up_counts();
    EXCEPTION WHEN OTHERS THEN
        failure := SQLSTATE || ': ' || SQLERRM;
        swept := ROW(0, 0, 0, 0);
        -- Said once, not at every visit.
        IF failure IS DISTINCT FROM (SELECT v.last_error FROM @extschema@.idem_worker_visit AS v) THEN
            RAISE LOG 'pg_idem worker: a sweep failed: %', failure;
        END IF;
    END;
    UPDATE @extschema@.idem_worker_visit AS v SET
        last_visit_at = clock_timestamp(),
        next_visit_at = clock_timestamp() + make_interval(secs => naptime),
        visited = v.visited + swept.visited,
        unknown = v.unknown + swept.unknown,
        scrubbed = v.scrubbed + swept.scrubbed,
        removed = v.removed + swept.removed,
        last_error = coalesce(failure, v.last_error),
        last_error_at = CASE WHEN failure IS NULL THEN v.last_error_at ELSE clock_timestamp() END;
    RETURN CASE WHEN failure IS NULL THEN swept ELSE ROW(-1, 0, 0, 0)::@extschema@.idem_swept END;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_visit IS 'One batch of the background worker, written down. Returns what it did, visited = -1 when it failed. For the worker only.';
REVOKE ALL ON FUNCTION @extschema@.idem_visit FROM PUBLIC;
