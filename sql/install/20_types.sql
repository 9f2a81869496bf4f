-- Result rows. Named types: the library looks their shape up once, and a function may return a column that is also
-- called like one of its parameters.

CREATE TYPE @extschema@.idem_reservation AS (
    granted             boolean,
    decision            text,
    action_id           uuid,
    attempt_id          uuid,
    fence               bigint,
    attempt             integer,
    state               text,
    lease_expires_at    timestamptz,
    retry_after_seconds double precision,
    response            jsonb,
    response_state      text,
    resource_id         text,
    external_request_id text,
    error               jsonb,
    provider_key        uuid
);
COMMENT ON TYPE @extschema@.idem_reservation IS 'What idem_reserve tells its caller. Anything but granted = true forbids the effect.';

CREATE TYPE @extschema@.idem_action_status AS (
    action_id           uuid,
    state               text,
    action_type         text,
    attempt             integer,
    lease_expires_at    timestamptz,
    due_at              timestamptz,
    deadline_at         timestamptz,
    needs_review        boolean,
    discrepancy         boolean,
    response            jsonb,
    response_state      text,
    resource_id         text,
    external_request_id text,
    error               jsonb,
    reason              text,
    created_at          timestamptz,
    ended_at            timestamptz,
    expires_at          timestamptz
);
COMMENT ON TYPE @extschema@.idem_action_status IS 'What idem_status shows of one action. state is NULL when there is none.';

CREATE TYPE @extschema@.idem_resolution AS (
    state         text,
    next_probe_at timestamptz
);
COMMENT ON TYPE @extschema@.idem_resolution IS 'What idem_resolve made of a finding, and when to look again.';

CREATE TYPE @extschema@.idem_swept AS (
    visited bigint,
    unknown bigint,
    scrubbed bigint,
    removed bigint
);
COMMENT ON TYPE @extschema@.idem_swept IS 'What one batch of idem_sweep did.';

CREATE TYPE @extschema@.idem_reconciliation AS (
    action_id           uuid,
    attempt_id          uuid,
    fence               bigint,
    lease_expires_at    timestamptz,
    tenant              text,
    key                 text,
    action_type         text,
    actor               text,
    target              text,
    fingerprint         bytea,
    attempt             integer,
    provider_key        uuid,
    external_request_id text,
    reason              text,
    evidence            jsonb,
    probes              integer,
    deadline_at         timestamptz,
    lookup_hint         text
);
COMMENT ON TYPE @extschema@.idem_reconciliation IS 'What idem_reconcile_next gives a reconciler: an unknown action that is his until lease_expires_at, and what is known of it.';

CREATE TYPE @extschema@.idem_due_action AS (
    granted             boolean,
    decision            text,
    action_id           uuid,
    attempt_id          uuid,
    fence               bigint,
    attempt             integer,
    state               text,
    lease_expires_at    timestamptz,
    retry_after_seconds double precision,
    response            jsonb,
    response_state      text,
    resource_id         text,
    external_request_id text,
    error               jsonb,
    provider_key        uuid,
    key                 text,
    tenant              text,
    action_type         text,
    request             jsonb
);
COMMENT ON TYPE @extschema@.idem_due_action IS 'What idem_due gives a worker: an action granted to it, as idem_reserve would say it, with its name and its stored request.';
