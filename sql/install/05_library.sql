-- The library that is in memory may be older than the files that were just installed. Said before anything is made:
-- every script begins with this check, those of an update too (Makefile).

CREATE FUNCTION @extschema@.idem_library_version() RETURNS text
LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_library_version IS 'Version of the library that the server, or this session, has loaded.';

CREATE FUNCTION @extschema@.idem_check_library() RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    library text := @extschema@.idem_library_version();
    files text := (SELECT e.default_version FROM pg_available_extensions AS e WHERE e.name = 'pg_idem');
BEGIN
    IF library IS DISTINCT FROM files THEN
        RAISE EXCEPTION 'a restart is needed: the loaded library of pg_idem is version %, its installed files are version %',
            library, files USING ERRCODE = '55000',
            HINT = 'Restart the server if pg_idem is preloaded, reconnect otherwise; then run this again.';
    END IF;
    RETURN library;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_check_library IS 'Refuses to go on where library and installed files differ. For the extension''s scripts. Errors: 55000.';
SELECT @extschema@.idem_check_library();
