-- Approval: putting an action forward, deciding on it, calling it off.

CREATE FUNCTION @extschema@.idem_propose(
    key text, request jsonb, tenant text = '', action_type text = 'default', actor text = NULL, target text = NULL,
    proposer text = NULL, fingerprint bytea = NULL, ttl_seconds double precision = NULL, workflow_id text = NULL,
    session_id text = NULL, payload_version text = NULL, policy_version integer = NULL, store_request boolean = NULL
) RETURNS @extschema@.idem_reservation
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_propose IS 'Puts an action forward for approval; grants nothing. idem_reserve starts it once it is approved. Errors: 22004, 22023, 25006, 40001, 42704, ID008.';

CREATE FUNCTION @extschema@.idem_approve(
    action_id uuid, fingerprint bytea, approver text = NULL, valid_seconds double precision = NULL,
    policy_version integer = NULL, note text = NULL
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_approve IS 'A person approves exactly the request with this fingerprint under the present policy, for a time and for this action only. Returns the state. Errors: 22004, 22023, 25006, 40001, 42501, 55000, ID003, ID004.';

CREATE FUNCTION @extschema@.idem_reject(action_id uuid, approver text = NULL, note text = NULL) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_reject IS 'A person refuses a proposal, or an approved action that nobody has started. Returns the state. Errors: 22004, 22023, 25006, 40001, 42501, ID003, ID004.';

CREATE FUNCTION @extschema@.idem_withdraw(action_id uuid, approver text = NULL, note text = NULL) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_withdraw IS 'Takes the approval back for good: no later grant and no later dispatch passes. Returns stopped, or too_late when something may have been sent; recorded in any case. Errors: 22004, 22023, 25006, 40001, 42501, ID004.';

CREATE FUNCTION @extschema@.idem_cancel(action_id uuid, note text = NULL) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_cancel IS 'Calls an action off, approval or not: as idem_withdraw, by those who asked for it. Returns stopped or too_late. Errors: 22004, 22023, 25006, 40001, 42501, ID004.';
