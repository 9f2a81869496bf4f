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
            ) WITH (fillfactor = 50)$ddl$, place);
        -- Claiming a message for the first time and renewing change no indexed column, so those updates are heap-only
        -- while there is room on the page: half of it holds a claimed version of each message in the other half.
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
