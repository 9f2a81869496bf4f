-- The stop switch: operators hold a tenant or an action type. (pg_idem.mode holds everything.)

CREATE TABLE @extschema@.idem_held (
    scope        text        COLLATE "C" NOT NULL,
    value        text        COLLATE "C" NOT NULL,
    n            integer     NOT NULL,
    held         boolean     NOT NULL,
    at           timestamptz NOT NULL,
    role         text        NOT NULL,
    session_role text        NOT NULL,
    note         text,
    CONSTRAINT idem_held_pkey PRIMARY KEY (scope, value, n),
    CONSTRAINT idem_held_scope CHECK (scope IN ('tenant', 'action_type'))
) USING heap;
COMMENT ON TABLE @extschema@.idem_held IS 'Holds and their lifting, one row for each change; the last one is in force. Append-only; read it through the view idem_holds.';
COMMENT ON INDEX @extschema@.idem_held_pkey IS 'The order in which a hold was changed.';
COMMENT ON COLUMN @extschema@.idem_held.value IS 'The tenant or the action type.';
COMMENT ON COLUMN @extschema@.idem_held.held IS 'False: the hold was lifted.';
REVOKE ALL ON TABLE @extschema@.idem_held FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_held', '');

CREATE TRIGGER idem_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON @extschema@.idem_held
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_refuse_change('A hold is lifted with idem_unhold.');
CREATE TRIGGER idem_cache_changed AFTER INSERT ON @extschema@.idem_held
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_cache_changed();

CREATE FUNCTION @extschema@.idem_hold(scope text, value text, note text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_hold IS 'Stops new effects of a tenant or an action type: from the COMMIT on no grant, claim or dispatch begins (ID008). Replays, the ending of attempts and reconciling go on. Returns held. Errors: 22004, 22023, 25006, 42501.';

CREATE FUNCTION @extschema@.idem_unhold(scope text, value text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_unhold IS 'Lifts a hold. Returns unheld, or not_held when there was none. Errors: 22004, 22023, 25006, 42501.';

CREATE VIEW @extschema@.idem_holds WITH (security_barrier) AS
SELECT h.scope, h.value, h.at AS since, h.role, h.session_role, h.note
FROM @extschema@.idem_held AS h
WHERE h.held AND (h.scope <> 'tenant' OR @extschema@.idem_sees_tenant(h.value)) AND NOT EXISTS (
    SELECT FROM @extschema@.idem_held AS later WHERE later.scope = h.scope AND later.value = h.value AND later.n > h.n);
COMMENT ON VIEW @extschema@.idem_holds IS 'The holds in force: what is stopped, since when, by whom and why.';
