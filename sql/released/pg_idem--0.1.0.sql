\echo Use "CREATE EXTENSION pg_idem" to load this file. \quit

-- For this script only, and to its end: every name that follows without a schema is PostgreSQL's own.
SET LOCAL search_path TO pg_catalog, pg_temp;
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
-- What is stored. The library reads and writes these tables below the executor and checks their columns against
-- what it expects once a session, so a column changes here and in src/store together.

CREATE TABLE @extschema@.idem_action (
    action_id                  uuid        NOT NULL,
    created_at                 timestamptz NOT NULL,
    visit_at                   timestamptz NOT NULL,
    fence                      bigint      NOT NULL,
    lease_expires_at           timestamptz,
    attempt_id                 uuid,
    attempt                    integer     NOT NULL,
    policy_version             integer     NOT NULL,
    scheme                     smallint    NOT NULL,
    tenant                     text        COLLATE "C" NOT NULL,
    key                        text        COLLATE "C" NOT NULL,
    action_type                text        COLLATE "C" NOT NULL,
    fingerprint                bytea       NOT NULL,
    actor                      text,
    target                     text,
    worker                     text,
    workflow_id                text,
    session_id                 text,
    payload_version            text,
    ttl                        bigint,
    request                    jsonb,
    generation                 integer,
    generation_granted_at      timestamptz,
    dispatched_at              timestamptz,
    due_at                     timestamptz,
    deadline_at                timestamptz,
    settle_from                timestamptz,
    probes                     integer,
    probe_tries                integer,
    probed_at                  timestamptz,
    reconcile_id               uuid,
    reconcile_lease_expires_at timestamptz,
    approval_expires_at        timestamptz,
    approval_policy_version    integer,
    forgiven                   integer,
    flags                      integer,
    state                      "char"      NOT NULL,
    ended_at                   timestamptz,
    expires_at                 timestamptz,
    resource_id                text,
    external_request_id        text,
    reason                     text,
    error                      jsonb,
    response                   jsonb,
    CONSTRAINT idem_action_pkey PRIMARY KEY (action_id)
) USING heap WITH (fillfactor = 30);
-- So much room that the commit's new version fits on the page even with 500 reservations outstanding: measured with
-- requests of 200 bytes and responses of 300, 30 kept every update heap-only, 35 98.7 %, 40 92.3 % at worst.
-- The only other index, on a column written at INSERT only: an index on anything that changes ends HOT updates.
CREATE INDEX idem_action_visit_at ON @extschema@.idem_action (visit_at);
COMMENT ON INDEX @extschema@.idem_action_pkey IS 'Identity of an action; the one place where uniqueness rests.';
COMMENT ON TABLE @extschema@.idem_action IS 'The ledger: one row for each action. Written by the functions only; read it through the view idem_actions.';
COMMENT ON COLUMN @extschema@.idem_action.visit_at IS 'When the sweep comes by for the first time; never changes. The sweep''s cursors follow it.';
COMMENT ON COLUMN @extschema@.idem_action.fence IS 'Rises with every acquisition: the greater of last fence + 1 and the clock in microseconds.';
COMMENT ON COLUMN @extschema@.idem_action.fingerprint IS 'Digest of what was asked for, in scope; compared under the scheme it was made with.';
COMMENT ON COLUMN @extschema@.idem_action.ttl IS 'Retention in microseconds that a call asked for, where longer than the type''s.';
COMMENT ON COLUMN @extschema@.idem_action.state IS 'p proposed, a approved, s started, u unknown, r retryable, c committed, f failed, j rejected, x expired.';
COMMENT ON COLUMN @extschema@.idem_action.flags IS 'Bits, from 1: open_before, own_closed, open_dispatched, ever_dispatched, restored, positive_evidence, discrepancy, escalated, withdrawn, needs_compensation, carried, said_unknown; 65536 response too large, 131072 request kept until it is decided.';
COMMENT ON COLUMN @extschema@.idem_action.approval_policy_version IS 'The version of the type''s policy that the approval is for.';
COMMENT ON COLUMN @extschema@.idem_action.forgiven IS 'Attempts that do not count against max_attempts; NULL is 0, as for the other counts.';
COMMENT ON INDEX @extschema@.idem_action_visit_at IS 'The order in which the sweep visits the ledger.';

CREATE TABLE @extschema@.idem_open (
    action_id   uuid        NOT NULL,
    queue       text        COLLATE "C" NOT NULL,
    due_at      timestamptz NOT NULL,
    visit_at    timestamptz,
    tenant      text        COLLATE "C" NOT NULL,
    action_type text        COLLATE "C" NOT NULL,
    CONSTRAINT idem_open_pkey PRIMARY KEY (action_id)
) USING heap WITH (fillfactor = 70);
CREATE INDEX idem_open_visit ON @extschema@.idem_open (queue, visit_at, due_at);
CREATE INDEX idem_open_queue ON @extschema@.idem_open (queue, due_at);
COMMENT ON INDEX @extschema@.idem_open_pkey IS 'One place for each action.';
COMMENT ON TABLE @extschema@.idem_open IS 'Actions off the hot path, by what they wait for. A hint: the ledger''s row decides.';
COMMENT ON COLUMN @extschema@.idem_open.queue IS 'approval, execution, client (as execution, where nobody else has the request), lease, reconciliation, review or expiry.';
COMMENT ON COLUMN @extschema@.idem_open.visit_at IS 'When the sweep has to look at it; NULL when it need not.';
COMMENT ON INDEX @extschema@.idem_open_visit IS 'The order in which the sweep visits open actions, and reconcilers serve those that are due: by deadline.';
COMMENT ON INDEX @extschema@.idem_open_queue IS 'The order in which the other queues are served.';

CREATE TABLE @extschema@.idem_attempt (
    action_id   uuid        NOT NULL,
    n           integer     NOT NULL,
    attempt     integer     NOT NULL,
    attempt_id  uuid        NOT NULL,
    fence       bigint      NOT NULL,
    reconciling boolean     NOT NULL,
    outcome     text        NOT NULL,
    ended_at    timestamptz NOT NULL,
    CONSTRAINT idem_attempt_pkey PRIMARY KEY (action_id, n)
) USING heap;
COMMENT ON INDEX @extschema@.idem_attempt_pkey IS 'The order in which attempts ended.';
COMMENT ON TABLE @extschema@.idem_attempt IS 'Attempts that did not end in a first-try commit, in the order in which they ended. Append-only.';
COMMENT ON COLUMN @extschema@.idem_attempt.attempt IS 'Number of the attempt; of a reconciling attempt, the attempt it looked after.';
COMMENT ON COLUMN @extschema@.idem_attempt.outcome IS 'committed, unknown, lapsed, superseded, retryable, failed, released, escalated, restored, or what a reconciling attempt found.';

CREATE TABLE @extschema@.idem_event (
    action_id           uuid        NOT NULL,
    n                   integer     NOT NULL,
    at                  timestamptz NOT NULL,
    attempt             integer     NOT NULL,
    event               text        NOT NULL,
    role                text        NOT NULL,
    session_role        text        NOT NULL,
    finding             text,
    resource_id         text,
    external_request_id text,
    note                text,
    response            jsonb,
    evidence            jsonb,
    candidates          jsonb,
    name                text,
    CONSTRAINT idem_event_pkey PRIMARY KEY (action_id, n)
) USING heap;
COMMENT ON INDEX @extschema@.idem_event_pkey IS 'The order in which things happened.';
COMMENT ON TABLE @extschema@.idem_event IS 'What happened to an action beyond a first-try commit, in order. Append-only.';
COMMENT ON COLUMN @extschema@.idem_event.name IS 'The name given for whoever proposed, approved, rejected or withdrew.';
COMMENT ON COLUMN @extschema@.idem_event.role IS 'The role that called the outermost function.';
COMMENT ON COLUMN @extschema@.idem_event.session_role IS 'The role that logged in.';

CREATE TABLE @extschema@.idem_compensation (
    action_id uuid        NOT NULL,
    parent_id uuid        NOT NULL,
    live_for  uuid,
    made_at   timestamptz NOT NULL,
    CONSTRAINT idem_compensation_pkey PRIMARY KEY (action_id)
) USING heap;
CREATE UNIQUE INDEX idem_compensation_live_for ON @extschema@.idem_compensation (live_for);
COMMENT ON INDEX @extschema@.idem_compensation_pkey IS 'What a compensation compensates.';
COMMENT ON INDEX @extschema@.idem_compensation_live_for IS 'One live compensation for each action.';
COMMENT ON TABLE @extschema@.idem_compensation IS 'Which action compensates which: one row for each compensation, which leaves with it.';
COMMENT ON COLUMN @extschema@.idem_compensation.live_for IS 'parent_id, until another compensation takes the place of this one.';

CREATE TABLE @extschema@.idem_action_type (
    name                text        COLLATE "C" NOT NULL,
    policy_version      integer     NOT NULL,
    class               text        NOT NULL,
    effect              text        NOT NULL,
    lease               bigint      NOT NULL,
    max_lease           bigint      NOT NULL,
    ttl                 bigint      NOT NULL,
    tombstone_ttl       bigint      NOT NULL,
    max_attempts        integer     NOT NULL,
    backoff_base        bigint      NOT NULL,
    backoff_cap         bigint      NOT NULL,
    requires_approval   boolean     NOT NULL,
    approval_ttl        bigint      NOT NULL,
    distinct_approver   text        NOT NULL,
    marks_dispatch      boolean     NOT NULL,
    provider_key_window bigint      NOT NULL,
    settle_delay        bigint      NOT NULL,
    probe_interval      bigint      NOT NULL,
    probes_required     integer     NOT NULL,
    resolve_deadline    bigint      NOT NULL,
    lookup_hint         text,
    compensation_type   text,
    registered_at       timestamptz NOT NULL,
    registered_by       text        NOT NULL,
    CONSTRAINT idem_action_type_pkey PRIMARY KEY (name, policy_version)
) USING heap;
COMMENT ON INDEX @extschema@.idem_action_type_pkey IS 'The versions of a type, the one in force last.';
COMMENT ON TABLE @extschema@.idem_action_type IS 'Policies of action types, one row for each version; the highest is in force. Lengths of time are in microseconds. Rows are never removed: an attempt keeps the policy it was granted under.';

CREATE TABLE @extschema@.idem_installation (
    installation_id uuid        NOT NULL,
    made_at         timestamptz NOT NULL,
    CONSTRAINT idem_installation_pkey PRIMARY KEY (installation_id)
) USING heap;
COMMENT ON INDEX @extschema@.idem_installation_pkey IS 'The identity itself.';
COMMENT ON TABLE @extschema@.idem_installation IS 'The random identity that provider keys are derived from. One row: loading another one, as a restore does, takes its place.';
INSERT INTO @extschema@.idem_installation VALUES (pg_catalog.gen_random_uuid(), pg_catalog.clock_timestamp());

CREATE TABLE @extschema@.idem_cursor (
    purpose     text        COLLATE "C" NOT NULL,
    visited_to  timestamptz NOT NULL,
    horizon_at  timestamptz,
    horizon_xid bigint,
    CONSTRAINT idem_cursor_pkey PRIMARY KEY (purpose)
) USING heap WITH (fillfactor = 10);
COMMENT ON INDEX @extschema@.idem_cursor_pkey IS 'One cursor for each purpose.';
COMMENT ON TABLE @extschema@.idem_cursor IS 'How far the sweep has come along idem_action.visit_at, by purpose. Not dumped: it starts over after a restore.';
INSERT INTO @extschema@.idem_cursor (purpose, visited_to)
SELECT purpose, '-infinity' FROM pg_catalog.unnest(ARRAY['lease', 'settled', 'scrub', 'remove']) AS purpose;

-- The tables hold tokens, requests and answers: nobody reads them but through functions and views.
REVOKE ALL ON TABLE @extschema@.idem_action, @extschema@.idem_open, @extschema@.idem_attempt, @extschema@.idem_event, @extschema@.idem_compensation, @extschema@.idem_action_type, @extschema@.idem_installation, @extschema@.idem_cursor
    FROM PUBLIC;

-- A logical backup without these rows would repeat side effects after a restore.
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_action', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_open', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_attempt', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_event', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_compensation', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_action_type', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_installation', '');
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
-- Action types.

CREATE FUNCTION @extschema@.idem_microseconds(parameter text, value interval, fallback interval) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seconds numeric := extract(epoch FROM coalesce(value, fallback));
BEGIN
    IF seconds < 0 OR seconds > 315576000 THEN
        RAISE EXCEPTION '% must lie between zero and ten years', parameter USING ERRCODE = '22023',
            HINT = 'Leave it out for the default.';
    END IF;
    RETURN round(seconds * 1000000)::bigint;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_microseconds IS 'A length of time as the tables keep it; the fallback where it is NULL. Errors: 22023.';

CREATE FUNCTION @extschema@.idem_register_action_type(
    name text, class text, effect text = 'external', lease interval = '60 s', max_lease interval = '1 h',
    ttl interval = '30 days', tombstone_ttl interval = '90 days', max_attempts integer = 5,
    backoff_base interval = '1 s', backoff_cap interval = '5 min', requires_approval boolean = NULL,
    approval_ttl interval = '1 h', distinct_approver text = 'role', marks_dispatch boolean = NULL,
    provider_key_window interval = '0', settle_delay interval = '60 s', probe_interval interval = '60 s',
    probes_required integer = 2, resolve_deadline interval = '24 h', lookup_hint text = NULL,
    compensation_type text = NULL
) RETURNS @extschema@.idem_action_type
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    made @extschema@.idem_action_type;
    old @extschema@.idem_action_type;
    -- What cannot be undone is looked at by two people before, and marked when it may have left.
    careful boolean := $2 = 'irreversible' AND coalesce($3, 'external') <> 'local';
    approval boolean := coalesce(requires_approval, careful);
BEGIN
    IF NOT @extschema@.idem_sees_tenant(NULL) THEN
        RAISE EXCEPTION 'a role that is bound to tenants cannot do what concerns all of them' USING ERRCODE = '42501',
            HINT = 'Use a role without bindings.';
    END IF;
    IF $1 IS NULL OR $2 IS NULL THEN
        RAISE EXCEPTION 'name and class must not be null' USING ERRCODE = '22004',
            HINT = 'Only the other parameters have defaults.';
    END IF;
    IF length($1) NOT BETWEEN 1 AND 100 THEN
        RAISE EXCEPTION 'name has % characters; it must have 1 to 100', length($1)
            USING ERRCODE = '22023', HINT = 'Shorten it.';
    END IF;
    IF $1 ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'name holds control characters' USING ERRCODE = '22023',
            HINT = 'Use a plain word, like refund.create.';
    END IF;
    IF $2 NOT IN ('read_only', 'idempotent_mutation', 'deduplicated_creation', 'reversible', 'irreversible') THEN
        RAISE EXCEPTION 'class is not one of the known words' USING ERRCODE = '22023',
            HINT = 'Use read_only, idempotent_mutation, deduplicated_creation, reversible or irreversible.';
    END IF;
    IF $3 NOT IN ('local', 'external') THEN
        RAISE EXCEPTION 'effect must be local or external' USING ERRCODE = '22023',
            HINT = 'local: in this database, in the transaction that reserved it. Everything else is external.';
    END IF;
    IF max_attempts < 1 OR probes_required < 1 THEN
        RAISE EXCEPTION 'max_attempts and probes_required must be at least 1' USING ERRCODE = '22023',
            HINT = 'Leave them out for 5 attempts and 2 probes.';
    END IF;
    made := ROW(
        $1, 0, $2, coalesce($3, 'external'),
        @extschema@.idem_microseconds('lease', lease, '60 s'),
        @extschema@.idem_microseconds('max_lease', max_lease, '1 h'),
        @extschema@.idem_microseconds('ttl', ttl, '30 days'),
        @extschema@.idem_microseconds('tombstone_ttl', tombstone_ttl, '90 days'),
        coalesce(max_attempts, 5),
        @extschema@.idem_microseconds('backoff_base', backoff_base, '1 s'),
        @extschema@.idem_microseconds('backoff_cap', backoff_cap, '5 min'),
        approval,
        @extschema@.idem_microseconds('approval_ttl', approval_ttl, '1 h'),
        coalesce(distinct_approver, 'role'),
        coalesce(marks_dispatch, careful OR approval),
        @extschema@.idem_microseconds('provider_key_window', provider_key_window, '0'),
        @extschema@.idem_microseconds('settle_delay', settle_delay, '60 s'),
        @extschema@.idem_microseconds('probe_interval', probe_interval, '60 s'),
        coalesce(probes_required, 2),
        @extschema@.idem_microseconds('resolve_deadline', resolve_deadline, '24 h'),
        lookup_hint, compensation_type, clock_timestamp(), session_user
    )::@extschema@.idem_action_type;
    IF made.lease = 0 OR made.max_lease < made.lease THEN
        RAISE EXCEPTION 'lease must be greater than zero and not longer than max_lease' USING ERRCODE = '22023',
            HINT = 'Name both, or leave both out for 60 s and 1 h.';
    END IF;
    IF made.backoff_base = 0 OR made.backoff_cap < made.backoff_base THEN
        RAISE EXCEPTION 'backoff_base must be greater than zero and not longer than backoff_cap'
            USING ERRCODE = '22023', HINT = 'Name both, or leave both out for 1 s and 5 min.';
    END IF;
    IF made.requires_approval AND NOT made.marks_dispatch THEN
        RAISE EXCEPTION 'a type that requires approval must mark its dispatch' USING ERRCODE = '22023',
            HINT = 'Leave marks_dispatch out: a withdrawal could not stop an attempt that marks nothing.';
    END IF;
    IF made.effect = 'local' AND made.marks_dispatch THEN
        RAISE EXCEPTION 'a local effect cannot require approval or mark its dispatch' USING ERRCODE = '22023',
            HINT = 'It is done in the transaction that reserved it; idem_dispatch is for what leaves the database.';
    END IF;
    IF made.distinct_approver NOT IN ('role', 'name', 'none') THEN
        RAISE EXCEPTION 'distinct_approver must be role, name or none' USING ERRCODE = '22023',
            HINT = 'role: proposer and approver are different roles. name: the names given for them differ.';
    END IF;
    IF made.approval_ttl = 0 THEN
        RAISE EXCEPTION 'approval_ttl must be greater than zero' USING ERRCODE = '22023',
            HINT = 'Leave it out for 1 h.';
    END IF;
    IF made.provider_key_window > 0 AND $2 <> 'deduplicated_creation' THEN
        RAISE EXCEPTION 'provider_key_window is for the class deduplicated_creation only' USING ERRCODE = '22023',
            HINT = 'It says how long the provider recognises a repeated key; other classes repeat always or never.';
    END IF;
    IF length(lookup_hint) > 255 OR lookup_hint !~ '[^[:space:]]' THEN
        RAISE EXCEPTION 'lookup_hint must have 1 to 255 characters' USING ERRCODE = '22023',
            HINT = 'Say in a line where to look, like: provider console, search by provider_key.';
    END IF;
    IF compensation_type IS NOT NULL AND (length(compensation_type) NOT BETWEEN 1 AND 100
        OR compensation_type ~ '[[:cntrl:]]' OR compensation_type = $1 OR $2 = 'read_only') THEN
        RAISE EXCEPTION 'compensation_type must be the name of another type, and not for the class read_only'
            USING ERRCODE = '22023', HINT = 'Name the type that undoes this one, like refund.create for charge.create.';
    END IF;
    -- One registration of a name at a time, so that its versions follow one another.
    PERFORM pg_advisory_xact_lock(hashtextextended('pg_idem/action_type/' || $1, 0));
    SELECT t.* INTO old FROM @extschema@.idem_action_type AS t
        WHERE t.name = $1 ORDER BY t.policy_version DESC LIMIT 1;
    IF to_jsonb(old) - '{policy_version,registered_at,registered_by}'::text[]
        = to_jsonb(made) - '{policy_version,registered_at,registered_by}'::text[] THEN
        RETURN old;
    END IF;
    INSERT INTO @extschema@.idem_action_type
        SELECT (jsonb_populate_record(made, jsonb_build_object('policy_version', coalesce(old.policy_version, 0) + 1))).*
        RETURNING * INTO made;
    RETURN made;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_register_action_type IS 'Registers an action type, or changes it: each change is a new policy_version. The same again changes nothing. Left out, requires_approval and marks_dispatch are on for the class irreversible. Returns the row in force. Errors: 22004, 22023, 42501.';

CREATE FUNCTION @extschema@.idem_when_unknown(class text, provider_key_window bigint) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET intervalstyle = 'postgres' AS $$
    SELECT CASE WHEN class IN ('read_only', 'idempotent_mutation') THEN 'repeat'
        WHEN class = 'deduplicated_creation' AND provider_key_window > 0
            THEN 'repeat with the same provider_key within ' || justify_hours(make_interval(secs => provider_key_window / 1e6))
                || ', then reconcile'
        WHEN class = 'irreversible' THEN 'reconcile; a person decides on another try'
        ELSE 'reconcile' END
$$;
COMMENT ON FUNCTION @extschema@.idem_when_unknown IS 'What a type does while an outcome is open and nobody is running, in words.';

CREATE VIEW @extschema@.idem_policy WITH (security_barrier) AS
SELECT t.name, t.policy_version, t.class,
    @extschema@.idem_when_unknown(t.class, t.provider_key_window) AS when_unknown,
    t.effect, t.requires_approval, t.marks_dispatch, t.distinct_approver, t.compensation_type, t.lookup_hint,
    t.max_attempts,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.lease OPERATOR(pg_catalog./) 1e6)) AS lease,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.max_lease OPERATOR(pg_catalog./) 1e6)) AS max_lease,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.backoff_base OPERATOR(pg_catalog./) 1e6)) AS backoff_base,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.backoff_cap OPERATOR(pg_catalog./) 1e6)) AS backoff_cap,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.approval_ttl OPERATOR(pg_catalog./) 1e6)) AS approval_ttl,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.provider_key_window OPERATOR(pg_catalog./) 1e6)) AS provider_key_window,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.settle_delay OPERATOR(pg_catalog./) 1e6)) AS settle_delay,
    t.probes_required,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.probe_interval OPERATOR(pg_catalog./) 1e6)) AS probe_interval,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.resolve_deadline OPERATOR(pg_catalog./) 1e6)) AS resolve_deadline,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.ttl OPERATOR(pg_catalog./) 1e6)) AS ttl,
    pg_catalog.justify_hours(pg_catalog.make_interval(secs => t.tombstone_ttl OPERATOR(pg_catalog./) 1e6)) AS tombstone_ttl,
    t.registered_at, t.registered_by
FROM @extschema@.idem_action_type AS t
WHERE t.policy_version OPERATOR(pg_catalog.=) (
    SELECT pg_catalog.max(l.policy_version) FROM @extschema@.idem_action_type AS l
    WHERE l.name OPERATOR(pg_catalog.=) t.name);
COMMENT ON VIEW @extschema@.idem_policy IS 'The policy sheet: each action type as it is in force, what a repeated effect would do and what happens while an outcome is open.';
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
-- Messages that leave with the transaction that wrote them. An outbox is an ordinary table of its owner's, so that dump,
-- replication and privileges are its own, and DROP EXTENSION leaves unsent messages alone; the extension keeps its options.

CREATE TYPE @extschema@.idem_outbox_message AS (
    id               uuid,
    aggregatetype    text,
    aggregateid      text,
    type             text,
    payload          jsonb,
    headers          jsonb,
    action_id        uuid,
    carries          boolean,
    created_at       timestamptz,
    seq              bigint,
    attempts         integer,
    due_at           timestamptz,
    claim_id         uuid,
    lease_expires_at timestamptz,
    fence            bigint,
    relay            text,
    last_error       text,
    delivered_at     timestamptz,
    dead_at          timestamptz
);
COMMENT ON TYPE @extschema@.idem_outbox_message IS 'The columns that an outbox table must have, by name and type, in any order; further columns are its owner''s. id, aggregatetype, aggregateid, type and payload are those that Debezium''s outbox event router reads.';
COMMENT ON COLUMN @extschema@.idem_outbox_message.carries IS 'True when claiming the message grants an attempt of its action, and acknowledging it commits that.';
COMMENT ON COLUMN @extschema@.idem_outbox_message.seq IS 'The order of messages; in an ordered outbox it is commit order for each aggregateid.';
COMMENT ON COLUMN @extschema@.idem_outbox_message.attempts IS 'How often the message was claimed.';
COMMENT ON COLUMN @extschema@.idem_outbox_message.due_at IS 'NULL until something kept the message from being delivered at its first claim. Then: when a relay may look at it; infinity for a dead letter; of a delivered message, when it is removed.';
COMMENT ON COLUMN @extschema@.idem_outbox_message.lease_expires_at IS 'Until when the last claim holds; NULL when none does.';
COMMENT ON COLUMN @extschema@.idem_outbox_message.fence IS 'The fence of the attempt that the last claim was granted.';
COMMENT ON COLUMN @extschema@.idem_outbox_message.dead_at IS 'When the message was given up: see idem_outbox_redrive.';

CREATE TYPE @extschema@.idem_outbox_claimed AS (
    id               uuid,
    aggregatetype    text,
    aggregateid      text,
    type             text,
    payload          jsonb,
    headers          jsonb,
    action_id        uuid,
    created_at       timestamptz,
    claim_id         uuid,
    attempt          integer,
    attempt_id       uuid,
    fence            bigint,
    provider_key     uuid,
    lease_expires_at timestamptz
);
COMMENT ON TYPE @extschema@.idem_outbox_claimed IS 'A message as its relay gets it. attempt_id, fence and provider_key are there when the message carries an action.';

CREATE TYPE @extschema@.idem_outbox_id AS (id uuid);
COMMENT ON TYPE @extschema@.idem_outbox_id IS 'The id of a message that was put.';

CREATE TYPE @extschema@.idem_outbox_outcome AS (id uuid, outcome text);
COMMENT ON TYPE @extschema@.idem_outbox_outcome IS 'What became of one message.';

CREATE TABLE @extschema@.idem_outbox (
    outbox         regclass NOT NULL,
    ordered        boolean  NOT NULL,
    max_attempts   integer  NOT NULL,
    keep_delivered bigint,
    notify_channel text,
    CONSTRAINT idem_outbox_pkey PRIMARY KEY (outbox)
) USING heap;
REVOKE ALL ON TABLE @extschema@.idem_outbox FROM PUBLIC;
COMMENT ON INDEX @extschema@.idem_outbox_pkey IS 'One row for each outbox.';
COMMENT ON TABLE @extschema@.idem_outbox IS 'Outbox tables and their options: see idem_create_outbox.';
COMMENT ON COLUMN @extschema@.idem_outbox.keep_delivered IS 'How long delivered messages stay, in microseconds; NULL: they are removed when they are acknowledged.';
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_outbox', '');
CREATE TRIGGER idem_outbox_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON @extschema@.idem_outbox
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_cache_changed();
COMMENT ON TRIGGER idem_outbox_changed ON @extschema@.idem_outbox IS 'Tells every session to read the options again.';

CREATE FUNCTION @extschema@.idem_register_outbox(
    outbox regclass, ordered boolean, max_attempts integer, keep_delivered bigint, notify_channel text
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_register_outbox IS 'The last step of idem_create_outbox: checks the columns of a table that the caller owns and keeps its options. Returns registered, changed or unchanged. Errors: 22004, 42501, 42809.';

CREATE FUNCTION @extschema@.idem_make_outbox(
    name text, schema text, ordered boolean, max_attempts integer, keep_delivered interval, notify_channel text
) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    parts text[];
    place text;
    made boolean := false;
    outcome text;
BEGIN
    IF name IS NULL THEN
        RAISE EXCEPTION 'name must not be null' USING ERRCODE = '22004', HINT = 'Name a table, with its schema: app.outbox.';
    END IF;
    ordered := coalesce(ordered, false);
    max_attempts := coalesce(max_attempts, 20);
    parts := parse_ident(name);
    IF cardinality(parts) > 2 THEN
        RAISE EXCEPTION 'name has % parts; it can have a schema and a table', cardinality(parts)
            USING ERRCODE = '22023', HINT = 'Name a table of this database: app.outbox.';
    END IF;
    IF cardinality(parts) = 1 THEN
        IF schema IS NULL THEN
            RAISE EXCEPTION 'no schema has been selected to create in' USING ERRCODE = '22023',
                HINT = 'Name the schema: app.outbox.';
        END IF;
        parts := schema || parts;
    END IF;
    IF octet_length(parts[1]) > 63 OR octet_length(parts[2]) > 63 THEN
        RAISE EXCEPTION 'name is longer than the 63 bytes that PostgreSQL keeps' USING ERRCODE = '22023',
            HINT = 'Choose a shorter one: cut off, it could be another table''s.';
    END IF;
    IF parts[1] ~ '^pg_temp' THEN
        RAISE EXCEPTION 'an outbox cannot be a temporary table' USING ERRCODE = '22023',
            HINT = 'Relays have to see it: choose another schema.';
    END IF;
    IF max_attempts < 1 THEN
        RAISE EXCEPTION 'max_attempts is %; it must be at least 1', max_attempts USING ERRCODE = '22023',
            HINT = 'Leave it out for 20.';
    END IF;
    IF keep_delivered < interval '0' OR keep_delivered > interval '10 years' THEN
        RAISE EXCEPTION 'keep_delivered must be from 0 to ten years' USING ERRCODE = '22023',
            HINT = 'NULL removes messages when they are acknowledged.';
    END IF;
    IF octet_length(notify_channel) NOT BETWEEN 1 AND 63 THEN
        RAISE EXCEPTION 'notify_channel must have 1 to 63 bytes' USING ERRCODE = '22023',
            HINT = 'NULL notifies nobody.';
    END IF;
    place := format('%I.%I', parts[1], parts[2]);
    -- One at a time for each name: those who come later find the table.
    PERFORM pg_advisory_xact_lock(hashtextextended('pg_idem/outbox/' || place, 0));
    IF to_regclass(place) IS NULL THEN
        EXECUTE format($ddl$
            CREATE TABLE %s (
                id               uuid        PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid(),
                aggregatetype    text        NOT NULL,
                aggregateid      text        NOT NULL,
                type             text        NOT NULL,
                payload          jsonb       NOT NULL,
                headers          jsonb,
                action_id        uuid,
                carries          boolean     NOT NULL DEFAULT false,
                created_at       timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
                seq              bigint      NOT NULL GENERATED BY DEFAULT AS IDENTITY,
                attempts         integer     NOT NULL DEFAULT 0,
                due_at           timestamptz,
                claim_id         uuid,
                lease_expires_at timestamptz,
                fence            bigint,
                relay            text,
                last_error       text,
                delivered_at     timestamptz,
                dead_at          timestamptz
            ) WITH (fillfactor = 60)$ddl$, place);
        -- Claiming a message for the first time and renewing change no indexed column, so those updates are heap-only.
        EXECUTE format('CREATE INDEX ON %s (seq)', place);
        EXECUTE format('CREATE INDEX ON %s (due_at) WHERE due_at IS NOT NULL', place);
        EXECUTE format('COMMENT ON TABLE %s IS %L', place,
            'Outbox: messages are put with idem_outbox_put and delivered by relays, see the type idem_outbox_message.');
        made := true;
    END IF;
    IF ordered AND NOT EXISTS (
        SELECT FROM pg_index AS i WHERE i.indrelid = place::regclass AND i.indnkeyatts = 2
            AND i.indkey[0] = (SELECT attnum FROM pg_attribute WHERE attrelid = i.indrelid AND attname = 'aggregateid')
            AND i.indkey[1] = (SELECT attnum FROM pg_attribute WHERE attrelid = i.indrelid AND attname = 'seq')
    ) AND (made OR pg_has_role((SELECT relowner FROM pg_class WHERE oid = place::regclass), 'USAGE'))
        AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = place::regclass AND attname = 'delivered_at') THEN
        EXECUTE format('CREATE INDEX ON %s (aggregateid, seq) WHERE delivered_at IS NULL', place);
    END IF;
    outcome := @extschema@.idem_register_outbox(place::regclass, ordered, max_attempts,
        (extract(epoch FROM keep_delivered) * 1000000)::bigint, notify_channel);
    RETURN CASE WHEN made THEN 'created' ELSE outcome END;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_make_outbox IS 'idem_create_outbox with the schema that an unqualified name goes to. Runs with the caller''s rights.';

CREATE FUNCTION @extschema@.idem_create_outbox(
    name text, ordered boolean = false, max_attempts integer = 20, keep_delivered interval = NULL,
    notify_channel text = NULL
) RETURNS text
-- No SET clause: the schema for an unqualified name is the caller's, and every name here is qualified.
LANGUAGE sql VOLATILE AS $$
    SELECT @extschema@.idem_make_outbox($1, pg_catalog.current_schema()::pg_catalog.text, $2, $3, $4, $5)
$$;
COMMENT ON FUNCTION @extschema@.idem_create_outbox IS 'Makes an outbox table, owned by the caller, or takes a fitting one of the caller''s as it is, and keeps its options. Again with other options changes them. Returns created, registered, changed or unchanged. Errors: 22004, 22023, 42501, 42809.';

CREATE FUNCTION @extschema@.idem_outbox_put(
    outbox text, type text, aggregatetype text, aggregateid text, payload jsonb, headers jsonb = NULL,
    action_id uuid = NULL, available_at timestamptz = NULL
) RETURNS uuid
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_outbox_put IS 'Writes a message that leaves when this transaction commits. With the action_id of an open action, the message carries it: the relay executes it. Returns the message''s id. Errors: 22004, 22023, 25006, 42501, 42809, 55000, ID004, ID006.';

CREATE FUNCTION @extschema@.idem_outbox_put_many(outbox text, messages jsonb) RETURNS SETOF @extschema@.idem_outbox_id
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_outbox_put_many IS 'Writes an array of messages, each an object with the parameters of idem_outbox_put as members. Returns their ids in the array''s order. One that is wrong refuses them all. Errors: as idem_outbox_put.';

CREATE FUNCTION @extschema@.idem_outbox_claim(
    outbox text, max integer = 10, lease_seconds double precision = 30, relay text = NULL
) RETURNS SETOF @extschema@.idem_outbox_claimed
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_outbox_claim IS 'Leases messages to a relay, oldest first, never one that another relay holds. COMMIT before delivering. Errors: 22004, 22023, 25006, 40001, 42501, 42809, 55000, ID008.';

CREATE FUNCTION @extschema@.idem_outbox_ack(
    outbox text, id uuid, claim_id uuid, response jsonb = NULL, resource_id text = NULL,
    external_request_id text = NULL
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_outbox_ack IS 'The message is delivered; the action that it carries is committed with it. Returns acked, already_acked, lost or missing. Errors: 22004, 22023, 25006, 40001, 42501, 42809, 55000, ID002, ID003.';

CREATE FUNCTION @extschema@.idem_outbox_ack_many(outbox text, claim_id uuid, ids uuid[])
RETURNS SETOF @extschema@.idem_outbox_outcome
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_outbox_ack_many IS 'Messages of one claim are delivered. Returns the outcome of each, as idem_outbox_ack does, in the order of ids; refused where the action that a message carries cannot be committed. Errors: 22004, 22023, 25006, 40001, 42501, 42809, 55000.';

CREATE FUNCTION @extschema@.idem_outbox_nack(
    outbox text, id uuid, claim_id uuid, error text = NULL, proof text = NULL, delay_seconds double precision = NULL
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_outbox_nack IS 'The message could not be delivered: it is tried again after delay_seconds, or a back-off. Of an action that it carries, proof says that it had no effect (not_sent, refused); without it the action is unknown. Returns retry, waiting, dead, already_acked, lost or missing. Errors: 22004, 22023, 25006, 40001, 42501, 42809, ID002, ID003, ID006.';

CREATE FUNCTION @extschema@.idem_outbox_renew(outbox text, claim_id uuid, lease_seconds double precision) RETURNS integer
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_outbox_renew IS 'Gives the messages of a claim that are still its own another lease. Returns how many. Errors: 22004, 22023, 25006, 40001, 42501, 42809.';

CREATE FUNCTION @extschema@.idem_outbox_redrive(outbox text, ids uuid[], skip boolean = false)
RETURNS SETOF @extschema@.idem_outbox_outcome
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_outbox_redrive IS 'Gives dead letters all their attempts again, or gives them up for good. Returns redriven, skipped, not_dead or missing for each, in the order of ids. Errors: 22004, 22023, 25006, 40001, 42501, 42809.';
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
-- Messages that consumers have seen.

CREATE TABLE @extschema@.idem_inbox (
    message_id    text        COLLATE "C" NOT NULL,
    consumer      text        COLLATE "C" NOT NULL,
    tenant        text        COLLATE "C" NOT NULL,
    first_seen_at timestamptz NOT NULL,
    payload       bytea,
    CONSTRAINT idem_inbox_pkey PRIMARY KEY (message_id, consumer, tenant)
) USING heap;
CREATE INDEX idem_inbox_first_seen_at ON @extschema@.idem_inbox (first_seen_at);
REVOKE ALL ON TABLE @extschema@.idem_inbox FROM PUBLIC;
COMMENT ON INDEX @extschema@.idem_inbox_pkey IS 'A message is new to a consumer once.';
COMMENT ON INDEX @extschema@.idem_inbox_first_seen_at IS 'The order in which the sweep forgets.';
COMMENT ON TABLE @extschema@.idem_inbox IS 'Messages that consumers have accepted, for pg_idem.inbox_retention. Written by idem_inbox_accept only.';
COMMENT ON COLUMN @extschema@.idem_inbox.payload IS 'Fingerprint of the payload; NULL when it is not compared.';
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_inbox', '');

CREATE TYPE @extschema@.idem_inbox_acceptance AS (
    decision      text,
    first_seen_at timestamptz
);
COMMENT ON TYPE @extschema@.idem_inbox_acceptance IS 'What idem_inbox_accept says of one message: new, duplicate or conflict. Only new is to be handled.';

CREATE TYPE @extschema@.idem_inbox_message AS (
    message_id    text,
    decision      text,
    first_seen_at timestamptz
);
COMMENT ON TYPE @extschema@.idem_inbox_message IS 'What idem_inbox_accept_many says of each message.';

CREATE FUNCTION @extschema@.idem_inbox_accept(
    consumer text, message_id text, payload jsonb = NULL, tenant text = ''
) RETURNS @extschema@.idem_inbox_acceptance
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_inbox_accept IS 'Says whether a consumer sees a message for the first time, and remembers it if this transaction commits: handle a new one in the same transaction. A payload that differs from the first one''s is a conflict; NULL is not compared. Errors: 22004, 22023, 25006, 40001, 42501, ID008.';

CREATE FUNCTION @extschema@.idem_inbox_accept_many(
    consumer text, message_ids text[], payloads jsonb[] = NULL, tenant text = ''
) RETURNS SETOF @extschema@.idem_inbox_message
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_inbox_accept_many IS 'idem_inbox_accept for several messages: one row for each, in the order given. Errors: as idem_inbox_accept.';
-- Views: no payload, no attempt_id. security_barrier, so that a condition of the reader's runs after ours.

CREATE FUNCTION @extschema@.idem_state_word(state "char") RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN state = 'p' THEN 'proposed' WHEN state = 'a' THEN 'approved' WHEN state = 's' THEN 'started'
        WHEN state = 'u' THEN 'unknown' WHEN state = 'r' THEN 'retryable' WHEN state = 'c' THEN 'committed'
        WHEN state = 'f' THEN 'failed' WHEN state = 'j' THEN 'rejected' WHEN state = 'x' THEN 'expired' END
$$;
COMMENT ON FUNCTION @extschema@.idem_state_word IS 'The word for a state''s letter in the ledger.';

CREATE VIEW @extschema@.idem_actions WITH (security_barrier) AS
SELECT a.action_id, a.tenant, a.key, a.action_type, a.actor, a.target,
    CASE WHEN a.state IN ('c', 'f', 'j') AND a.expires_at <= pg_catalog.clock_timestamp() THEN 'expired'
        ELSE @extschema@.idem_state_word(a.state) END AS state,
    a.attempt, a.fence,
    CASE WHEN a.state = 's' THEN a.lease_expires_at WHEN a.state = 'u' THEN a.reconcile_lease_expires_at END
        AS lease_expires_at,
    a.due_at, a.deadline_at, a.resource_id, a.external_request_id, a.reason,
    coalesce(a.flags, 0) & 64 <> 0 AS discrepancy,
    coalesce(a.flags, 0) & 128 <> 0 AS escalated,
    coalesce(a.flags, 0) & 512 <> 0 AS needs_compensation,
    a.worker, a.workflow_id, a.session_id, a.payload_version, a.policy_version,
    a.created_at, a.ended_at, a.expires_at
FROM @extschema@.idem_action AS a
WHERE @extschema@.idem_sees_tenant(a.tenant);
COMMENT ON VIEW @extschema@.idem_actions IS 'The ledger as people read it.';

CREATE VIEW @extschema@.idem_attempts WITH (security_barrier) AS
SELECT t.action_id, t.n, t.attempt, t.fence, t.reconciling, t.outcome, t.ended_at
FROM @extschema@.idem_attempt AS t
WHERE (SELECT @extschema@.idem_sees_tenant(NULL)) OR EXISTS (
    SELECT FROM @extschema@.idem_action AS a WHERE a.action_id = t.action_id AND @extschema@.idem_sees_tenant(a.tenant));
COMMENT ON VIEW @extschema@.idem_attempts IS 'Attempts that did not end in a first-try commit.';

CREATE VIEW @extschema@.idem_unresolved WITH (security_barrier) AS
SELECT a.action_id, a.tenant, a.key, a.action_type, seen.state, a.attempt,
    -- Whoever looks into it just now; nobody's name stands here when nobody does.
    (SELECT coalesce(e.note, e.role) FROM @extschema@.idem_event AS e
        WHERE a.reconcile_lease_expires_at > seen.now AND e.action_id = a.action_id AND e.event = 'reconcile'
        ORDER BY e.n DESC LIMIT 1) AS owner,
    seen.now - coalesce(
        (SELECT pg_catalog.max(t.ended_at) FROM @extschema@.idem_attempt AS t
            WHERE t.action_id = a.action_id AND NOT t.reconciling), a.created_at) AS age,
    seen.deadline_at, a.due_at, a.reconcile_lease_expires_at, a.probes,
    last.finding AS last_evidence, last.resource_id AS last_resource_id, last.at AS last_evidence_at,
    coalesce(a.flags, 0) & 32 <> 0 AS positive_evidence,
    coalesce(a.flags, 0) & 64 <> 0 AS discrepancy,
    coalesce(a.flags, 0) & 512 <> 0 AS needs_compensation,
    seen.needs_review, a.resource_id, a.external_request_id, a.reason, p.lookup_hint,
    CASE WHEN coalesce(a.flags, 0) & 64 <> 0 OR seen.needs_review
            THEN 'a person decides: idem_decide(action_id, applied | not_applied | retry, note)'
        WHEN a.state = 'c' THEN 'undo the part that happened: idem_compensate(action_id, key, request)'
        WHEN a.reconcile_lease_expires_at > seen.now THEN 'its reconciler reports: idem_resolve'
        WHEN a.due_at > seen.now THEN 'wait until due_at'
        ELSE 'look it up: idem_reconcile_next, then idem_resolve' END AS next_step
FROM @extschema@.idem_action AS a
JOIN (
    SELECT o.action_id FROM @extschema@.idem_open AS o WHERE o.queue IN ('lease', 'reconciliation', 'review')
    UNION
    -- Dead first attempts that nobody has come by yet.
    SELECT f.action_id FROM @extschema@.idem_action AS f
    WHERE f.visit_at > (SELECT c.visited_to FROM @extschema@.idem_cursor AS c WHERE c.purpose = 'lease')
        AND f.visit_at <= pg_catalog.clock_timestamp() AND f.state = 's'
) AS o USING (action_id)
LEFT JOIN LATERAL (
    SELECT t.lookup_hint, t.resolve_deadline FROM @extschema@.idem_action_type AS t
    WHERE t.name = a.action_type ORDER BY t.policy_version DESC LIMIT 1
) AS p ON true
LEFT JOIN LATERAL (
    SELECT e.finding, e.resource_id, e.at FROM @extschema@.idem_event AS e
    WHERE e.action_id = a.action_id AND (e.finding IS NOT NULL OR e.resource_id IS NOT NULL) ORDER BY e.n DESC LIMIT 1
) AS last ON true,
LATERAL (SELECT pg_catalog.clock_timestamp() AS now,
    a.state = 's' AND a.lease_expires_at <= pg_catalog.clock_timestamp() AS dead) AS clock,
LATERAL (
    SELECT clock.now,
        CASE WHEN clock.dead THEN 'unknown' ELSE @extschema@.idem_state_word(a.state) END AS state,
        CASE WHEN clock.dead THEN coalesce(a.deadline_at, a.lease_expires_at
            + coalesce(p.resolve_deadline, 86400000000) * interval '1 microsecond') ELSE a.deadline_at END AS deadline_at
) AS judged,
LATERAL (
    SELECT judged.now, judged.state, judged.deadline_at,
        coalesce(a.flags, 0) & 128 <> 0 OR coalesce(judged.deadline_at <= judged.now, false) AS needs_review
) AS seen
WHERE @extschema@.idem_sees_tenant(a.tenant) AND (a.state = 'u' OR clock.dead OR coalesce(a.flags, 0) & 64 <> 0
    OR a.state = 'c' AND coalesce(a.flags, 0) & 512 <> 0 AND NOT EXISTS (
        -- A compensation that is not there any more may have happened.
        SELECT FROM @extschema@.idem_compensation AS l LEFT JOIN @extschema@.idem_action AS child ON child.action_id = l.action_id
        WHERE l.live_for = a.action_id AND (child.state IS NULL OR child.state NOT IN ('f', 'j'))));
COMMENT ON VIEW @extschema@.idem_unresolved IS 'Actions whose outcome is not known, or about which reports contradict each other, or of which only a part happened: who is at it, how long it has been so, until when, what was found last, how to look it up, and what to do next.';

CREATE VIEW @extschema@.idem_compensations WITH (security_barrier) AS
SELECT a.action_id, a.tenant, a.key, a.action_type,
    CASE WHEN a.expires_at <= pg_catalog.clock_timestamp() THEN 'expired'
        ELSE @extschema@.idem_state_word(a.state) END AS state,
    a.resource_id, coalesce(a.flags, 0) & 512 <> 0 AS needs_compensation,
    l.action_id AS compensation_id, c.key AS compensation_key, c.action_type AS compensation_type,
    CASE WHEN c.expires_at <= pg_catalog.clock_timestamp() THEN 'expired'
        ELSE @extschema@.idem_state_word(c.state) END AS compensation_state,
    c.resource_id AS compensation_resource_id, l.live_for IS NOT NULL AS stands, l.made_at
FROM @extschema@.idem_compensation AS l
LEFT JOIN @extschema@.idem_action AS c ON c.action_id = l.action_id
LEFT JOIN @extschema@.idem_action AS a ON a.action_id = l.parent_id
WHERE @extschema@.idem_sees_tenant(coalesce(c.tenant, a.tenant));
COMMENT ON VIEW @extschema@.idem_compensations IS 'Each compensation with its original: both outcomes in one row. stands is false for one that another has replaced.';

CREATE VIEW @extschema@.idem_overdue WITH (security_barrier) AS
SELECT a.action_id, a.tenant, a.key, a.action_type, @extschema@.idem_state_word(a.state) AS state, a.attempt,
    late.since, pg_catalog.clock_timestamp() - late.since AS late
FROM @extschema@.idem_open AS o JOIN @extschema@.idem_action AS a USING (action_id),
    LATERAL (SELECT CASE WHEN a.state = 's' THEN a.lease_expires_at WHEN a.state = 'u' THEN a.deadline_at
        WHEN a.state = 'r' THEN a.due_at ELSE a.approval_expires_at END AS since) AS late
WHERE a.state IN ('p', 'a', 's', 'u', 'r') AND late.since <= pg_catalog.clock_timestamp()
    AND @extschema@.idem_sees_tenant(a.tenant)
UNION ALL
-- First attempts that the sweep has not come by yet.
SELECT a.action_id, a.tenant, a.key, a.action_type, 'started', a.attempt,
    a.lease_expires_at, pg_catalog.clock_timestamp() - a.lease_expires_at
FROM @extschema@.idem_action AS a
WHERE a.visit_at > (SELECT c.visited_to FROM @extschema@.idem_cursor AS c WHERE c.purpose = 'settled')
    AND a.visit_at <= pg_catalog.clock_timestamp() AND a.state = 's'
    AND a.lease_expires_at <= pg_catalog.clock_timestamp()
    AND NOT EXISTS (SELECT FROM @extschema@.idem_open AS o WHERE o.action_id = a.action_id)
    AND @extschema@.idem_sees_tenant(a.tenant);
COMMENT ON VIEW @extschema@.idem_overdue IS 'Actions that are not ended and past the time they should have moved on: dead attempts, unresolved outcomes past their deadline, retries nobody came for.';
-- What approvers decide on.

CREATE VIEW @extschema@.idem_proposals WITH (security_barrier) AS
SELECT a.action_id, a.tenant, a.key, a.action_type, a.actor, a.target,
    CASE WHEN a.state OPERATOR(pg_catalog.=) 'a' AND NOT current.approved THEN 'proposed'
        ELSE @extschema@.idem_state_word(a.state) END AS state,
    CASE WHEN NOT current.approved THEN a.request END AS request, a.fingerprint, current.policy_version,
    p.at AS proposed_at, p.role AS proposer_role, p.session_role AS proposer_session_role, p.name AS proposer,
    a.approval_expires_at, current.approved, a.workflow_id, a.session_id
FROM @extschema@.idem_open AS o
JOIN @extschema@.idem_action AS a ON a.action_id OPERATOR(pg_catalog.=) o.action_id
CROSS JOIN LATERAL (
    SELECT coalesce(pg_catalog.max(t.policy_version), 0) AS policy_version,
        a.state OPERATOR(pg_catalog.<>) 'p'
            AND coalesce(pg_catalog.max(t.policy_version), 0) OPERATOR(pg_catalog.=) coalesce(a.approval_policy_version, -1)
            AND a.approval_expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() AS approved
    FROM @extschema@.idem_action_type AS t WHERE t.name OPERATOR(pg_catalog.=) a.action_type
) AS current
LEFT JOIN LATERAL (
    SELECT e.at, e.role, e.session_role, e.name FROM @extschema@.idem_event AS e
    WHERE e.action_id OPERATOR(pg_catalog.=) a.action_id AND e.event OPERATOR(pg_catalog.=) 'proposed'
    ORDER BY e.n LIMIT 1
) AS p ON true
WHERE @extschema@.idem_sees_tenant(a.tenant) AND ((a.state OPERATOR(pg_catalog.=) ANY ('{p,a}'::"char"[])
        AND a.approval_expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())
    OR (a.state OPERATOR(pg_catalog.=) ANY ('{r,u}'::"char"[]) AND EXISTS (
        SELECT FROM @extschema@.idem_action_type AS t WHERE t.name OPERATOR(pg_catalog.=) a.action_type
            AND t.policy_version OPERATOR(pg_catalog.=) current.policy_version AND t.requires_approval)));
COMMENT ON VIEW @extschema@.idem_proposals IS 'What approvers decide on: proposals with their request until they are decided, approved actions nobody has started, and actions whose approval may be renewed.';
-- What led to an action, and what it led to.

CREATE TABLE @extschema@.idem_link (
    action_id  uuid        NOT NULL,
    direction  text        COLLATE "C" NOT NULL,
    message_id text        COLLATE "C" NOT NULL,
    place      text        NOT NULL,
    tenant     text        COLLATE "C" NOT NULL,
    at         timestamptz NOT NULL,
    carrier_in regclass,
    CONSTRAINT idem_link_pkey PRIMARY KEY (action_id, direction, message_id)
) USING heap;
CREATE INDEX idem_link_message_id ON @extschema@.idem_link (message_id);
REVOKE ALL ON TABLE @extschema@.idem_link FROM PUBLIC;
COMMENT ON INDEX @extschema@.idem_link_pkey IS 'A message is linked to an action once, each way.';
COMMENT ON INDEX @extschema@.idem_link_message_id IS 'From a message to its actions.';
COMMENT ON TABLE @extschema@.idem_link IS 'Messages that actions came from (in) and messages that came from actions (out).';
COMMENT ON COLUMN @extschema@.idem_link.place IS 'The consumer that accepted the message, or the outbox it was put into.';
COMMENT ON COLUMN @extschema@.idem_link.carrier_in IS 'The outbox that the message carries the action in: nowhere else does it. NULL where it only tells of the action.';
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_link', '');

CREATE VIEW @extschema@.idem_lineage WITH (security_barrier) AS
SELECT i.message_id, i.place AS consumer, i.at AS accepted_at,
    a.action_id, a.tenant, a.key, a.action_type, @extschema@.idem_state_word(a.state) AS state, a.attempt,
    ARRAY(SELECT pg_catalog.format('%s %s', t.attempt, t.outcome) FROM @extschema@.idem_attempt AS t
        WHERE t.action_id = a.action_id AND NOT t.reconciling ORDER BY t.n) AS ended_attempts,
    a.resource_id, a.external_request_id,
    o.message_id AS outbox_message_id, o.place AS outbox, o.at AS put_at
FROM @extschema@.idem_action AS a
LEFT JOIN @extschema@.idem_link AS i ON i.action_id = a.action_id AND i.direction = 'in'
LEFT JOIN @extschema@.idem_link AS o ON o.action_id = a.action_id AND o.direction = 'out'
WHERE (i.action_id IS NOT NULL OR o.action_id IS NOT NULL) AND @extschema@.idem_sees_tenant(a.tenant);
COMMENT ON VIEW @extschema@.idem_lineage IS 'From the message that a consumer accepted, to the action reserved in the same transaction, to its attempts, to the messages it was put into an outbox with.';
-- The story of one action, for people. No payload, no token.

CREATE FUNCTION @extschema@.idem_trace(key text, tenant text = '')
RETURNS TABLE (at timestamptz, attempt integer, event text, detail text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    story @extschema@.idem_action;
    asked_at timestamptz := clock_timestamp();
BEGIN
    -- Refuses what is no name, and a tenant that is not the caller's.
    PERFORM @extschema@.idem_status($1, $2);
    SELECT a.* INTO story FROM @extschema@.idem_action AS a
    WHERE a.action_id = @extschema@.idem_action_id($1, $2) AND a.key = $1 AND a.tenant = $2;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH said AS (
        -- place: what happened at the same moment is told in this order.
        SELECT story.created_at AS at, 0 AS place, 0 AS n, NULL::integer AS attempt, 'action' AS event,
            format('actionId=%s type=%s fingerprint=%s', story.action_id, story.action_type,
                encode(story.fingerprint, 'hex'))
                || coalesce(' workflow=' || story.workflow_id, '') AS detail
        UNION ALL
        SELECT story.created_at, 2, 0, 1, 'execute', 'attemptId=1 -> granted'
        WHERE story.attempt > 0 AND NOT EXISTS (
            SELECT FROM @extschema@.idem_event AS e
            WHERE e.action_id = story.action_id AND e.event = 'execute' AND e.attempt = 1)
        UNION ALL
        SELECT t.ended_at, 3, t.n, t.attempt, t.outcome,
            CASE WHEN t.reconciling THEN format('attemptId=%s -> lookup %s', t.attempt, t.outcome)
                ELSE format('attemptId=%s -> %s', t.attempt, t.outcome) END
        FROM @extschema@.idem_attempt AS t
        WHERE t.action_id = story.action_id AND NOT EXISTS (
            -- The event says the same, and more.
            SELECT FROM @extschema@.idem_event AS e
            WHERE e.action_id = t.action_id AND e.at = t.ended_at AND e.event = t.outcome)
        UNION ALL
        SELECT e.at, 4, e.n, e.attempt, e.event,
            CASE WHEN e.event = 'execute' THEN format('attemptId=%s -> granted', e.attempt)
                WHEN e.event = 'reconcile' THEN format('attemptId=%s -> lookup begun by %s', e.attempt, coalesce(e.note, e.role))
                WHEN e.event IN ('applied', 'partially_applied', 'not_applied', 'ambiguous', 'inconclusive')
                    THEN format('attemptId=%s -> lookup: %s', e.attempt, e.event)
                WHEN e.event IN ('evidence', 'discrepancy')
                    THEN e.event || ' -> ' || coalesce(e.finding, 'a result of an attempt that had lost the action')
                        || coalesce(', ' || e.note, '')
                WHEN e.event = 'compensation' THEN 'compensation -> actionId=' || e.note
                WHEN e.event IN ('committed', 'committed_late', 'unknown', 'failed', 'retryable', 'released', 'lapsed')
                    THEN format('attemptId=%s -> %s', e.attempt, e.event) || coalesce(': ' || e.note, '')
                ELSE e.event || ' by ' || e.role || coalesce(': ' || e.note, '') END
            || coalesce(', resource=' || e.resource_id, '') || coalesce(', request=' || e.external_request_id, '')
        FROM @extschema@.idem_event AS e WHERE e.action_id = story.action_id
        UNION ALL
        SELECT story.created_at, 1, 0, NULL, 'compensates', 'compensates -> actionId=' || l.parent_id
        FROM @extschema@.idem_compensation AS l WHERE l.action_id = story.action_id
        UNION ALL
        -- A first try that was committed leaves no other trace.
        SELECT story.ended_at, 5, 0, story.attempt, 'committed', format('attemptId=%s -> committed', story.attempt)
        WHERE story.state = 'c' AND NOT EXISTS (
            SELECT FROM @extschema@.idem_event AS e WHERE e.action_id = story.action_id
                AND e.event IN ('committed', 'committed_late', 'applied', 'partially_applied', 'decided'))
        UNION ALL
        SELECT coalesce(story.ended_at, asked_at), 6, 0, NULL, 'outcome', 'outcome -> '
            || CASE WHEN story.state IN ('c', 'f', 'j') AND story.expires_at <= asked_at
                    THEN 'expired'
                WHEN story.state = 's' AND story.lease_expires_at <= asked_at
                    THEN 'unknown, attempt ' || story.attempt || ' is past its lease'
                WHEN story.state = 's' THEN 'started, attempt ' || story.attempt || ' has its lease'
                ELSE @extschema@.idem_state_word(story.state) END
            || coalesce(', resource=' || story.resource_id, '')
            || coalesce(', request=' || story.external_request_id, '')
            || CASE WHEN coalesce(story.flags, 0) & 64 <> 0 THEN ', reports contradict each other' ELSE '' END
            || CASE WHEN coalesce(story.flags, 0) & 128 <> 0 THEN ', a person has to decide' ELSE '' END
            || CASE WHEN coalesce(story.flags, 0) & 512 <> 0 THEN ', in part' ELSE '' END
    )
    SELECT s.at, s.attempt, s.event, s.detail FROM said AS s
    ORDER BY s.event = 'outcome', s.at, s.place, s.n;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_trace IS 'The story of one action in order: what happened, in which attempt, and the outcome. No payload, no token: fit for a report. No row for an action that is not there. Errors: 22004, 22023, 42501.';
-- Numbers to watch.

CREATE TABLE @extschema@.idem_counted (
    name    text   COLLATE "C" NOT NULL,
    up_to   bigint,
    value   bigint NOT NULL,
    counter bigint
) USING heap;
COMMENT ON TABLE @extschema@.idem_counted IS 'Counts: the sum over a name counts. Whatever is counted adds a row, and the worker adds rows up.';
COMMENT ON COLUMN @extschema@.idem_counted.up_to IS 'Of a distribution: the upper bound that this counts for, in microseconds.';
COMMENT ON COLUMN @extschema@.idem_counted.counter IS 'Of what was counted in shared memory: where. Of a counter that still counts, this much is written down.';
REVOKE ALL ON TABLE @extschema@.idem_counted FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_counted', '');

CREATE TYPE @extschema@.idem_live_count AS (name text, value bigint, counter bigint);
COMMENT ON TYPE @extschema@.idem_live_count IS 'One count in shared memory, from the counter''s beginning on.';

CREATE FUNCTION @extschema@.idem_live_counts() RETURNS SETOF @extschema@.idem_live_count
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 4 AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_live_counts IS 'What was counted in shared memory, what is written down already included; no rows where the library is not preloaded, nor for a role that is bound to tenants. For the view idem_metrics. Errors: 0A000.';

CREATE TYPE @extschema@.idem_recent_conflict AS (action_id uuid, action_type text, at timestamptz);
COMMENT ON TYPE @extschema@.idem_recent_conflict IS 'One call that brought another request under a key in use.';

CREATE FUNCTION @extschema@.idem_recent_conflicts() RETURNS SETOF @extschema@.idem_recent_conflict
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100 AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_recent_conflicts IS 'The last conflicts in this database that the calling role sees, from shared memory; no rows where the library is not preloaded. For the view idem_conflicts. Errors: 0A000.';

CREATE VIEW @extschema@.idem_unwritten_counts AS
SELECT l.name, l.counter, greatest(0, l.value OPERATOR(pg_catalog.-) coalesce(
    (SELECT pg_catalog.sum(c.value) FROM @extschema@.idem_counted AS c
        WHERE c.name OPERATOR(pg_catalog.=) l.name AND c.counter OPERATOR(pg_catalog.=) l.counter), 0)) AS more
FROM @extschema@.idem_live_counts() AS l;
COMMENT ON VIEW @extschema@.idem_unwritten_counts IS 'What was counted in shared memory and is not written down in idem_counted. For the view idem_metrics.';
REVOKE ALL ON TABLE @extschema@.idem_unwritten_counts FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_add_up_counts() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rows bigint;
BEGIN
    -- One at a time, as sweeps are, and with what the one before wrote in sight; the next visit finds all that is left.
    PERFORM FROM @extschema@.idem_cursor AS c WHERE c.purpose = 'lease' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RETURN 0;
    END IF;
    -- Nothing is taken from shared memory: what is written down of a counter is known by it, so a transaction that
    -- is rolled back loses nothing, and whoever reads meanwhile sees the same sum.
    INSERT INTO @extschema@.idem_counted (name, value, counter)
        SELECT l.name, l.more, l.counter FROM @extschema@.idem_unwritten_counts AS l WHERE l.more > 0;
    IF (SELECT count(*) FROM (SELECT FROM @extschema@.idem_counted LIMIT 100) AS few) < 100 THEN
        RETURN 0;
    END IF;
    -- Rows that others add meanwhile stay.
    WITH gone AS (
        DELETE FROM @extschema@.idem_counted AS c WHERE c.ctid = ANY (ARRAY(
            SELECT d.ctid FROM @extschema@.idem_counted AS d LIMIT 10000))
        RETURNING c.name, c.up_to, c.value,
            CASE WHEN c.counter IN (SELECT l.counter FROM @extschema@.idem_live_counts() AS l) THEN c.counter END AS counter
    ), added AS (
        INSERT INTO @extschema@.idem_counted
            SELECT g.name, g.up_to, sum(g.value), g.counter FROM gone AS g GROUP BY g.name, g.up_to, g.counter
    )
    SELECT count(*) INTO rows FROM gone;
    RETURN rows;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_add_up_counts IS 'Writes down what was counted in shared memory, and adds up the rows of idem_counted when there are many. For the worker and idem_sweep_all.';

CREATE VIEW @extschema@.idem_metrics WITH (security_barrier) AS
SELECT m.name, NULL::double precision AS up_to_seconds,
    CASE WHEN m.live AND live.preloaded IS NULL THEN NULL
        ELSE coalesce(kept.value, 0) / m.per + coalesce(live.value, 0) END AS value,
    CASE WHEN m.live THEN 'approximate' ELSE 'exact' END AS precision
FROM (VALUES ('actions.started', true, 1.0::double precision), ('attempts.sent', true, 1), ('actions.unknown', false, 1),
    ('reconciliations.resolved', false, 1), ('duplicate_requests_suppressed', true, 1),
    ('conflicting_key_reuse', true, 1), ('compensations.created', false, 1), ('time_to_resolution.sum', false, 1000000)
    ) AS m (name, live, per)
LEFT JOIN (
    SELECT c.name, pg_catalog.sum(c.value) AS value FROM @extschema@.idem_counted AS c WHERE c.up_to IS NULL GROUP BY c.name
) AS kept ON kept.name = m.name
LEFT JOIN (
    SELECT l.name, l.more AS value, true AS preloaded FROM @extschema@.idem_unwritten_counts AS l
) AS live ON live.name = m.name
WHERE (SELECT @extschema@.idem_sees_tenant(NULL))
UNION ALL
-- As a histogram is exported: how many took up to so long.
SELECT 'time_to_resolution', b.up_to, coalesce(
    (SELECT pg_catalog.sum(c.value) FROM @extschema@.idem_counted AS c
        WHERE c.name = 'time_to_resolution' AND c.up_to <= b.up_to * 1000000), 0), 'exact'
FROM (VALUES (1.0::double precision), (10), (60), (300), (900), (3600), (21600), (86400), ('Infinity')) AS b (up_to)
WHERE (SELECT @extschema@.idem_sees_tenant(NULL));
COMMENT ON VIEW @extschema@.idem_metrics IS 'Numbers to watch, cumulative. Exact ones are counted in the transaction that they count; approximate ones in shared memory, what is rolled back included, and NULL where the library is not preloaded.';

CREATE VIEW @extschema@.idem_conflicts WITH (security_barrier) AS
SELECT r.action_id, r.action_type, r.at
FROM @extschema@.idem_recent_conflicts() AS r
LEFT JOIN @extschema@.idem_action AS a ON a.action_id = r.action_id
WHERE @extschema@.idem_sees_tenant(a.tenant);
COMMENT ON VIEW @extschema@.idem_conflicts IS 'The last calls that brought another request under a key in use: the action, the type they named, when. Empty where the library is not preloaded.';
-- After a restore, a failover or a copy: the database may be older than the world.

CREATE TYPE @extschema@.idem_restored AS (
    turned_unknown bigint
);
COMMENT ON TYPE @extschema@.idem_restored IS 'What idem_after_restore did.';

CREATE FUNCTION @extschema@.idem_after_restore(note text, as_copy boolean = false) RETURNS @extschema@.idem_restored
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_after_restore IS 'The database is older than what happened: every action that is not ended becomes unknown, no attempt of before goes on, and nothing but read_only and idempotent_mutation actions repeats until it is disproved. as_copy also takes a new installation id, so that provider keys are other ones. Waits for all transactions that use the ledger, and keeps others out until it ends. Errors: 22004, 22023, 25006, 42501, 55000.';
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
-- Who may do what. A capability is a set of functions and views; nothing is granted to PUBLIC.

CREATE FUNCTION @extschema@.idem_capability(capability text) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE capability
        WHEN 'execute' THEN ARRAY['FUNCTION idem_reserve', 'FUNCTION idem_once', 'FUNCTION idem_once_call', 'FUNCTION idem_commit', 'FUNCTION idem_mark_unknown',
            'FUNCTION idem_dispatch', 'FUNCTION idem_fail', 'FUNCTION idem_renew', 'FUNCTION idem_release', 'FUNCTION idem_add_evidence',
            'FUNCTION idem_status', 'FUNCTION idem_status_by_id', 'FUNCTION idem_action_id', 'FUNCTION idem_key',
            'FUNCTION idem_canonical', 'FUNCTION idem_fingerprint', 'FUNCTION idem_fingerprint_text',
            'FUNCTION idem_action_fingerprint', 'FUNCTION idem_propose', 'FUNCTION idem_cancel', 'FUNCTION idem_outbox_put', 'FUNCTION idem_outbox_put_many',
            'FUNCTION idem_inbox_accept', 'FUNCTION idem_inbox_accept_many']
        WHEN 'relay' THEN ARRAY['FUNCTION idem_due', 'FUNCTION idem_commit', 'FUNCTION idem_mark_unknown', 'FUNCTION idem_dispatch', 'FUNCTION idem_fail',
            'FUNCTION idem_renew', 'FUNCTION idem_release', 'FUNCTION idem_add_evidence', 'FUNCTION idem_status',
            'FUNCTION idem_status_by_id', 'FUNCTION idem_action_id', 'FUNCTION idem_outbox_claim', 'FUNCTION idem_outbox_ack',
            'FUNCTION idem_outbox_ack_many', 'FUNCTION idem_outbox_nack', 'FUNCTION idem_outbox_renew',
            'FUNCTION idem_outbox_redrive']
        WHEN 'reconcile' THEN ARRAY['FUNCTION idem_reconcile_next', 'FUNCTION idem_resolve', 'FUNCTION idem_escalate', 'FUNCTION idem_renew', 'FUNCTION idem_add_evidence',
            'FUNCTION idem_status', 'FUNCTION idem_status_by_id', 'FUNCTION idem_action_id']
        WHEN 'approve' THEN ARRAY['FUNCTION idem_approve', 'FUNCTION idem_reject', 'FUNCTION idem_withdraw',
            'FUNCTION idem_state_word', 'FUNCTION idem_sees_tenant', 'TABLE idem_proposals']
        WHEN 'operate' THEN ARRAY['FUNCTION idem_register_action_type', 'FUNCTION idem_sweep', 'FUNCTION idem_add_up_counts',
            'PROCEDURE idem_sweep_all', 'FUNCTION idem_acknowledge_clock', 'FUNCTION idem_decide', 'FUNCTION idem_reopen', 'FUNCTION idem_compensate',
            'FUNCTION idem_hold', 'FUNCTION idem_unhold', 'FUNCTION idem_bind_tenant', 'FUNCTION idem_unbind_tenant',
            'FUNCTION idem_after_restore', 'FUNCTION idem_create_outbox', 'FUNCTION idem_make_outbox', 'FUNCTION idem_register_outbox']
        WHEN 'read' THEN ARRAY['FUNCTION idem_state_word', 'FUNCTION idem_sees_tenant', 'FUNCTION idem_preloaded', 'FUNCTION idem_when_unknown', 'TABLE idem_policy', 'TABLE idem_actions', 'TABLE idem_attempts', 'TABLE idem_unresolved',
            'TABLE idem_overdue', 'TABLE idem_compensations', 'TABLE idem_lineage', 'TABLE idem_metrics', 'FUNCTION idem_live_counts', 'TABLE idem_conflicts', 'FUNCTION idem_recent_conflicts', 'FUNCTION idem_trace', 'TABLE idem_worker_status', 'TABLE idem_holds', 'TABLE idem_bindings']
    END;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_capability IS 'What a capability consists of; NULL for a word that is none.';

CREATE FUNCTION @extschema@.idem_grant(role regrole, VARIADIC capabilities text[]) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    capability text;
    object text;
BEGIN
    PERFORM @extschema@.idem_check_capabilities(role, capabilities);
    EXECUTE format('GRANT USAGE ON SCHEMA %s TO %s', '@extschema@', role);
    FOREACH capability IN ARRAY capabilities LOOP
        FOREACH object IN ARRAY @extschema@.idem_capability(capability) LOOP
            EXECUTE format('GRANT %s ON %s %s.%I TO %s', CASE split_part(object, ' ', 1) WHEN 'TABLE' THEN 'SELECT'
                ELSE 'EXECUTE' END, split_part(object, ' ', 1), '@extschema@', split_part(object, ' ', 2), role);
        END LOOP;
    END LOOP;
    RETURN 'granted';
END
$$;
COMMENT ON FUNCTION @extschema@.idem_grant IS 'Gives a role capabilities: execute, relay, reconcile, approve, operate, read. Returns granted. Runs with the caller''s own right to grant. Errors: 22004, 22023, 42501.';

CREATE FUNCTION @extschema@.idem_revoke(role regrole, VARIADIC capabilities text[]) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    capability text;
    object text;
    kept text[];
BEGIN
    PERFORM @extschema@.idem_check_capabilities(role, capabilities);
    -- What another capability of the role also holds stays.
    SELECT coalesce(array_agg(o), '{}') INTO kept
    FROM unnest(ARRAY['execute', 'relay', 'reconcile', 'approve', 'operate', 'read']) AS held(c),
        LATERAL unnest(@extschema@.idem_capability(held.c)) AS o
    WHERE held.c <> ALL (capabilities) AND @extschema@.idem_has_capability(role, held.c);
    FOREACH capability IN ARRAY capabilities LOOP
        FOREACH object IN ARRAY @extschema@.idem_capability(capability) LOOP
            CONTINUE WHEN object = ANY (kept);
            EXECUTE format('REVOKE %s ON %s %s.%I FROM %s', CASE split_part(object, ' ', 1) WHEN 'TABLE' THEN 'SELECT'
                ELSE 'EXECUTE' END, split_part(object, ' ', 1), '@extschema@', split_part(object, ' ', 2), role);
        END LOOP;
    END LOOP;
    RETURN 'revoked';
END
$$;
COMMENT ON FUNCTION @extschema@.idem_revoke IS 'Takes capabilities from a role; what another of its capabilities also holds stays. Returns revoked. Errors: 22004, 22023, 42501.';

CREATE FUNCTION @extschema@.idem_has_capability(role regrole, capability text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    object text;
    name text;
BEGIN
    FOREACH object IN ARRAY @extschema@.idem_capability(capability) LOOP
        name := split_part(object, ' ', 2);
        IF NOT EXISTS (
            SELECT FROM pg_proc AS p, LATERAL aclexplode(p.proacl) AS a
            WHERE p.pronamespace = '@extschema@'::regnamespace AND p.proname = name AND a.grantee = role
            UNION ALL
            SELECT FROM pg_class AS c, LATERAL aclexplode(c.relacl) AS a
            WHERE c.relnamespace = '@extschema@'::regnamespace AND c.relname = name AND a.grantee = role
        ) THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_has_capability IS 'True when a role was given all of a capability itself.';

CREATE FUNCTION @extschema@.idem_check_capabilities(role regrole, capabilities text[]) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF role IS NULL OR capabilities IS NULL OR array_position(capabilities, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'role and capabilities must not be null' USING ERRCODE = '22004',
            HINT = 'Name a role and at least one of execute, relay, reconcile, approve, operate, read.';
    END IF;
    IF cardinality(capabilities) = 0 OR EXISTS (
        SELECT FROM unnest(capabilities) AS c WHERE @extschema@.idem_capability(c) IS NULL
    ) THEN
        RAISE EXCEPTION 'a capability is not one of the known words' USING ERRCODE = '22023',
            HINT = 'Use execute, relay, reconcile, approve, operate or read.';
    END IF;
    RETURN true;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_check_capabilities IS 'Refuses words that are no capability. Errors: 22004, 22023.';

-- Functions are executable by PUBLIC unless that is taken away.
DO $$
DECLARE
    routine regprocedure;
BEGIN
    FOR routine IN
        SELECT d.objid FROM pg_catalog.pg_depend AS d
        JOIN pg_catalog.pg_extension AS e ON e.oid OPERATOR(pg_catalog.=) d.refobjid
        WHERE d.deptype OPERATOR(pg_catalog.=) 'e' AND e.extname OPERATOR(pg_catalog.=) 'pg_idem'
            AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
            AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', routine);
    END LOOP;
END
$$;
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
