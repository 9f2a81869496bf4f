-- Messages that consumers have seen.

CREATE TABLE @extschema@.idem_inbox (
    message_id    text        COLLATE "C" NOT NULL,
    consumer      text        COLLATE "C" NOT NULL,
    tenant        text        COLLATE "C" NOT NULL,
    first_seen_at timestamptz NOT NULL,
    payload       bytea,
    CONSTRAINT idem_inbox_pkey PRIMARY KEY (message_id, consumer, tenant)
) USING heap;
REVOKE ALL ON TABLE @extschema@.idem_inbox FROM PUBLIC;
COMMENT ON INDEX @extschema@.idem_inbox_pkey IS 'A message is new to a consumer once.';
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
