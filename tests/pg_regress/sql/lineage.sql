-- idem_lineage: from the message that a consumer accepted to the action, its attempts, and the messages it led to.
\set VERBOSITY terse
CREATE SCHEMA lineage;
SELECT idem_create_outbox('lineage.o');
BEGIN;
SELECT decision FROM idem_inbox_accept('lineage consumer', 'lineage-1');
SELECT action_id FROM idem_reserve('lineage 1', '{}') \gset
SELECT count(idem_outbox_put('lineage.o', 'refund', 'order', '1', '{}', action_id => :'action_id'));
COMMIT;
SELECT idem_outbox_ack('lineage.o', id, claim_id, resource_id => 're_1') FROM idem_outbox_claim('lineage.o');
SELECT count(idem_outbox_put('lineage.o', 'refunded', 'order', '1', '{}', action_id => :'action_id'));
SELECT consumer, message_id, key, state, attempt, ended_attempts, resource_id, outbox, outbox_message_id = (SELECT id::text FROM lineage.o) AS told
FROM idem_lineage WHERE message_id = 'lineage-1' ORDER BY put_at;
-- A message that was seen before leads to nothing, nor does one of another transaction.
BEGIN; SELECT decision FROM idem_inbox_accept('lineage consumer', 'lineage-1'); SELECT decision FROM idem_reserve('lineage 2', '{}'); COMMIT;
SELECT decision FROM idem_reserve('lineage 3', '{}');
BEGIN; SELECT decision FROM idem_inbox_accept('lineage consumer', 'lineage-2'); ROLLBACK;
SELECT decision FROM idem_reserve('lineage 4', '{}');
SELECT count(*) FROM idem_lineage WHERE key IN ('lineage 2', 'lineage 3', 'lineage 4');
-- The action that leaves takes its links with it.
UPDATE idem_action SET state = 'x', expires_at = now() - interval '1 s' WHERE action_id = :'action_id';
INSERT INTO idem_open VALUES (:'action_id', 'expiry', now() - interval '1 s', now() - interval '1 s', '', 'default')
ON CONFLICT (action_id) DO UPDATE SET visit_at = EXCLUDED.visit_at;
CALL idem_sweep_all();
SELECT count(*) FROM idem_link WHERE action_id = :'action_id';
SET client_min_messages = warning;
DROP SCHEMA lineage CASCADE;
RESET client_min_messages;
