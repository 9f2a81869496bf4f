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
    page        bigint,
    CONSTRAINT idem_cursor_pkey PRIMARY KEY (purpose)
) USING heap WITH (fillfactor = 10);
COMMENT ON INDEX @extschema@.idem_cursor_pkey IS 'One cursor for each purpose.';
COMMENT ON TABLE @extschema@.idem_cursor IS 'How far the sweep has come, by purpose: along idem_action.visit_at, or over the pages of idem_inbox. Not dumped: it starts over after a restore.';
COMMENT ON COLUMN @extschema@.idem_cursor.page IS 'The page that a pass has come to; NULL when none is under way. visited_to is what it is, or was, for.';
INSERT INTO @extschema@.idem_cursor (purpose, visited_to)
SELECT purpose, '-infinity' FROM pg_catalog.unnest(ARRAY['lease', 'settled', 'scrub', 'remove', 'inbox']) AS purpose;

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
