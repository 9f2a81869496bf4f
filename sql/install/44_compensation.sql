-- Compensation: a new action that offsets what another one did.

CREATE FUNCTION @extschema@.idem_compensate(
    parent uuid, key text, request jsonb, action_type text = NULL, tenant text = NULL, actor text = NULL,
    target text = NULL, fingerprint bytea = NULL, attempt_id uuid = NULL, lease_seconds double precision = NULL,
    ttl_seconds double precision = NULL, wait_seconds double precision = NULL, can_reconcile boolean = false,
    worker text = NULL, workflow_id text = NULL, session_id text = NULL, payload_version text = NULL,
    policy_version integer = NULL, store_request boolean = NULL
) RETURNS @extschema@.idem_reservation
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_compensate IS 'Asks for the action that compensates a committed one, as idem_reserve does; the original stays as it was. One live compensation for an action, none of a compensation, none while the outcome is unknown. Errors: 22004, 22023, 25006, 40001, 42501, 42704, 55000, ID003, ID004, ID008.';
