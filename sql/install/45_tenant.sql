-- Roles that are bound to tenants.

CREATE TABLE @extschema@.idem_bound (
    role            regrole     NOT NULL,
    tenant          text        COLLATE "C" NOT NULL,
    n               integer     NOT NULL,
    bound           boolean     NOT NULL,
    at              timestamptz NOT NULL,
    by_role         text        NOT NULL,
    by_session_role text        NOT NULL,
    CONSTRAINT idem_bound_pkey PRIMARY KEY (role, tenant, n)
) USING heap;
COMMENT ON TABLE @extschema@.idem_bound IS 'Bindings of roles to tenants and their end, one row for each change; the last one is in force. Append-only; read it through the view idem_bindings.';
COMMENT ON INDEX @extschema@.idem_bound_pkey IS 'The order in which a binding was changed.';
COMMENT ON COLUMN @extschema@.idem_bound.role IS 'By its object id, so that a role that is renamed stays bound; dumped by name.';
COMMENT ON COLUMN @extschema@.idem_bound.bound IS 'False: the binding was taken away.';
REVOKE ALL ON TABLE @extschema@.idem_bound FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_bound', '');

CREATE TRIGGER idem_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON @extschema@.idem_bound
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_refuse_change('A binding is taken away with idem_unbind_tenant.');
CREATE TRIGGER idem_cache_changed AFTER INSERT ON @extschema@.idem_bound
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_cache_changed();

CREATE FUNCTION @extschema@.idem_bind_tenant(role regrole, tenant text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_bind_tenant IS 'Binds a role, and all that inherit its privileges, to a tenant: from then on they see only tenants that they are bound to. Returns bound. Errors: 22004, 22023, 25006, 42501, 42704.';

CREATE FUNCTION @extschema@.idem_unbind_tenant(role regrole, tenant text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_unbind_tenant IS 'Takes a binding away; without its last one a role sees every tenant. Returns unbound, or not_bound when there was no such binding. Errors: 22004, 22023, 25006, 42501.';

CREATE FUNCTION @extschema@.idem_sees_tenant(tenant text) RETURNS boolean
LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_sees_tenant IS 'True when the calling role sees a tenant; for NULL, when it sees all of them. For views.';

CREATE VIEW @extschema@.idem_bindings WITH (security_barrier) AS
SELECT b.role, b.tenant, b.at AS since, b.by_role, b.by_session_role
FROM @extschema@.idem_bound AS b
WHERE b.bound AND @extschema@.idem_sees_tenant(b.tenant) AND NOT EXISTS (
    SELECT FROM @extschema@.idem_bound AS later WHERE later.role = b.role AND later.tenant = b.tenant AND later.n > b.n);
COMMENT ON VIEW @extschema@.idem_bindings IS 'The roles that are bound to tenants, since when and by whom.';
