-- DROP EXTENSION with live actions is refused. A hook of the library does it; this only sees to it that the library is
-- loaded in a session that drops something before it has called any function.

CREATE FUNCTION @extschema@.idem_guard_drop() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM @extschema@.idem_library_version();
EXCEPTION WHEN OTHERS THEN
    -- A library that is gone must not keep anybody from dropping anything.
    RAISE WARNING 'the library of pg_idem cannot be loaded, so that its ledger can be dropped unasked: %', SQLERRM;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_guard_drop IS 'Event trigger: loads the library, whose hook refuses to drop a ledger with live actions unless pg_idem.allow_drop is on.';
REVOKE ALL ON FUNCTION @extschema@.idem_guard_drop FROM PUBLIC;

CREATE EVENT TRIGGER idem_guard_drop ON ddl_command_start WHEN TAG IN ('DROP EXTENSION', 'DROP SCHEMA', 'DROP OWNED')
    EXECUTE FUNCTION @extschema@.idem_guard_drop();
COMMENT ON EVENT TRIGGER idem_guard_drop IS 'Guards the ledger of pg_idem; see pg_idem.allow_drop.';
