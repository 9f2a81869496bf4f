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
