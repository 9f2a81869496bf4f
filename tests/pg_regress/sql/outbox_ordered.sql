-- An ordered outbox: messages of one aggregateid one after the other, whatever happens to one of them.
\set VERBOSITY terse
CREATE SCHEMA outbox_ordered;
SELECT idem_create_outbox('outbox_ordered.o', ordered => true, max_attempts => 1);
SELECT count(*) FROM idem_outbox_put_many('outbox_ordered.o', '[
    {"type": "a1", "aggregatetype": "order", "aggregateid": "a", "payload": 1}, {"type": "a2", "aggregatetype": "order", "aggregateid": "a", "payload": 1},
    {"type": "b1", "aggregatetype": "order", "aggregateid": "b", "payload": 1}, {"type": "a3", "aggregatetype": "order", "aggregateid": "a", "payload": 1}]');
CREATE TABLE outbox_ordered.c AS SELECT * FROM idem_outbox_claim('outbox_ordered.o');
SELECT type FROM outbox_ordered.c ORDER BY 1;
SELECT type FROM idem_outbox_claim('outbox_ordered.o');
SELECT type, idem_outbox_ack('outbox_ordered.o', id, claim_id) FROM outbox_ordered.c ORDER BY 1;
CREATE TABLE outbox_ordered.d AS SELECT * FROM idem_outbox_claim('outbox_ordered.o');
SELECT type, idem_outbox_nack('outbox_ordered.o', id, claim_id, 'no') FROM outbox_ordered.d ORDER BY 1;
-- A dead letter blocks its successors, and nobody else's,
SELECT count(idem_outbox_put('outbox_ordered.o', 'b2', 'order', 'b', '{}'));
SELECT type FROM idem_outbox_claim('outbox_ordered.o');
-- until it is redriven or skipped.
SELECT outcome FROM idem_outbox_redrive('outbox_ordered.o', ARRAY(SELECT id FROM outbox_ordered.d), skip => true);
SELECT type FROM idem_outbox_claim('outbox_ordered.o');
SET client_min_messages = warning;
DROP SCHEMA outbox_ordered CASCADE;
RESET client_min_messages;
