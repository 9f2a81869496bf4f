-- idem_outbox_put and idem_outbox_put_many: messages that leave with their transaction.
\set VERBOSITY terse
CREATE SCHEMA outbox_put;
SELECT idem_create_outbox('outbox_put.o');
SELECT idem_outbox_put('outbox_put.o', 'created', 'order', '1', '{"n": 1}', '{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}') IS NOT NULL AS put;
SELECT type, aggregatetype, aggregateid, payload, headers, action_id, carries, attempts, due_at, claim_id FROM outbox_put.o;
-- Ids are of version 7, so that they come one after the other.
SELECT substr(id::text, 15, 1) AS version FROM outbox_put.o;
-- Rolled back, and to a savepoint
BEGIN; SELECT count(idem_outbox_put('outbox_put.o', 'gone', 'order', '1', '{}')); ROLLBACK;
BEGIN;
SELECT count(idem_outbox_put('outbox_put.o', 'stays', 'order', '1', '{}'));
SAVEPOINT s; SELECT count(idem_outbox_put('outbox_put.o', 'gone', 'order', '1', '{}')); ROLLBACK TO s;
COMMIT;
SELECT type FROM outbox_put.o ORDER BY seq;
-- Many: ids in the array's order, one row each, seq as well
CREATE TABLE outbox_put.ids AS SELECT id, ordinality AS n FROM idem_outbox_put_many('outbox_put.o', '[
    {"type": "a", "aggregatetype": "order", "aggregateid": "2", "payload": [1]},
    {"type": "b", "aggregatetype": "order", "aggregateid": 3, "payload": "text", "headers": null},
    {"type": "c", "aggregatetype": "order", "aggregateid": "2", "payload": {}, "headers": {"x": 1}, "available_at": "2100-01-01T00:00:00Z"}]') WITH ORDINALITY;
SELECT n, type, aggregateid, payload, headers, due_at > '2099-01-01' AS later, rank() OVER (ORDER BY seq) AS place FROM outbox_put.ids JOIN outbox_put.o USING (id) ORDER BY n;
SELECT count(*) FROM idem_outbox_put_many('outbox_put.o', '[]');
-- Not before its time
SELECT type FROM idem_outbox_claim('outbox_put.o', 100) ORDER BY 1;
-- Refused before anything is written
SELECT count(*) FROM outbox_put.o;
SELECT idem_outbox_put(NULL, 'a', 'b', 'c', '{}');
SELECT idem_outbox_put('outbox_put.o', NULL, 'b', 'c', '{}');
SELECT idem_outbox_put('outbox_put.o', 'a', '', 'c', '{}');
SELECT idem_outbox_put('outbox_put.o', 'a', 'b', repeat('x', 256), '{}');
SELECT idem_outbox_put('outbox_put.o', 'a', 'b', 'c', NULL);
SELECT idem_outbox_put('outbox_put.o', 'a', 'b', 'c', '{}', '[]');
SELECT idem_outbox_put('outbox_put.o', 'a', 'b', 'c', '{}', action_id => '11111111-1111-8111-8111-111111111111');
SELECT idem_outbox_put('outbox_put.nowhere', 'a', 'b', 'c', '{}');
SELECT idem_outbox_put('outbox_put.ids', 'a', 'b', 'c', '{}');
SELECT * FROM idem_outbox_put_many('outbox_put.o', '{}');
SELECT * FROM idem_outbox_put_many('outbox_put.o', NULL);
SELECT * FROM idem_outbox_put_many('outbox_put.o', '[{"type": "a", "aggregatetype": "order", "aggregateid": "2", "payload": [1]}, {"type": "a"}]');
SELECT * FROM idem_outbox_put_many('outbox_put.o', '[["type", "aggregatetype", "aggregateid", "payload"]]');
SELECT * FROM idem_outbox_put_many('outbox_put.o', '[{"type": "a", "aggregatetype": "order", "aggregateid": "2", "payload": 1, "headers": 1}]');
SELECT count(*) FROM outbox_put.o;
BEGIN READ ONLY; SELECT idem_outbox_put('outbox_put.o', 'a', 'b', 'c', '{}'); ROLLBACK;
SET client_min_messages = warning;
DROP SCHEMA outbox_put CASCADE;
RESET client_min_messages;
