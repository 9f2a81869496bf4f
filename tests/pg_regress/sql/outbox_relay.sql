-- A relay's life: claim, ack, nack, renew; dead letters and idem_outbox_redrive.
\set VERBOSITY terse
CREATE SCHEMA outbox_relay;
SELECT idem_create_outbox('outbox_relay.o', max_attempts => 2);
SELECT count(*) FROM idem_outbox_put_many('outbox_relay.o', (SELECT jsonb_agg(jsonb_build_object('type', 't' || n, 'aggregatetype', 'order', 'aggregateid', n, 'payload', n)) FROM generate_series(1, 6) AS n));
-- Oldest first, as many as asked for; what one holds no other gets.
CREATE TABLE outbox_relay.c AS SELECT * FROM idem_outbox_claim('outbox_relay.o', 2, relay => 'first');
SELECT type, aggregatetype, aggregateid, payload, attempt, attempt_id, fence, provider_key, lease_expires_at > now() + '29 s' AS leased FROM outbox_relay.c ORDER BY type;
SELECT type FROM idem_outbox_claim('outbox_relay.o', 2, 3600);
SELECT count(DISTINCT claim_id) FROM outbox_relay.c;
SELECT type, attempts, relay FROM outbox_relay.o WHERE claim_id IS NOT NULL ORDER BY seq;
SELECT claim_id FROM outbox_relay.c LIMIT 1 \gset
SELECT id AS one FROM outbox_relay.c WHERE type = 't1' \gset
SELECT id AS two FROM outbox_relay.c WHERE type = 't2' \gset
SELECT id AS six FROM outbox_relay.o WHERE type = 't6' \gset
SELECT idem_outbox_renew('outbox_relay.o', :'claim_id', 3600);
SELECT type, lease_expires_at > now() + '59 min' AS renewed FROM outbox_relay.o WHERE relay = 'first' ORDER BY seq;
-- Each message has its own outcome, in the order asked: nothing sinks the batch.
\set nobody 11111111-1111-4111-8111-111111111111
SELECT outcome FROM idem_outbox_ack_many('outbox_relay.o', :'claim_id', ARRAY[:'nobody', :'six', :'one', :'one']::uuid[]);
SELECT idem_outbox_ack('outbox_relay.o', :'one', :'claim_id'), idem_outbox_ack('outbox_relay.o', :'six', :'claim_id'), idem_outbox_ack('outbox_relay.o', :'two', :'nobody');
SELECT count(*) FROM idem_outbox_ack_many('outbox_relay.o', :'claim_id', '{}');
-- A failure rests, also when no rest is asked for; told again, the answer is the same.
SELECT idem_outbox_nack('outbox_relay.o', :'two', :'claim_id', 'refused by broker', delay_seconds => 0);
SELECT idem_outbox_nack('outbox_relay.o', :'two', :'claim_id', 'refused by broker', delay_seconds => 0);
SELECT due_at > clock_timestamp() AS rests, lease_expires_at, last_error, dead_at FROM outbox_relay.o WHERE id = :'two';
SELECT idem_outbox_renew('outbox_relay.o', :'claim_id', 10);
SELECT pg_sleep(0.11);
-- Failure 62: it comes back beside new ones. At the last attempt it is a dead letter.
CREATE TABLE outbox_relay.d AS SELECT * FROM idem_outbox_claim('outbox_relay.o', 2);
SELECT type, attempt FROM outbox_relay.d ORDER BY type;
SELECT idem_outbox_ack('outbox_relay.o', :'two', :'claim_id') AS by_the_first_claim;
SELECT idem_outbox_nack('outbox_relay.o', :'two', claim_id, 'refused again') FROM outbox_relay.d LIMIT 1;
SELECT type, attempts, last_error, dead_at IS NOT NULL AS dead FROM outbox_relay.o WHERE dead_at IS NOT NULL;
SELECT type FROM idem_outbox_claim('outbox_relay.o', 100) ORDER BY 1;
-- A relay that dies has used the attempt up.
SELECT idem_create_outbox('outbox_relay.crash', max_attempts => 2);
SELECT count(idem_outbox_put('outbox_relay.crash', 'a', 'b', 'c', '{}'));
SELECT attempt FROM idem_outbox_claim('outbox_relay.crash', lease_seconds => 0.01); SELECT pg_sleep(0.02);
SELECT attempt FROM idem_outbox_claim('outbox_relay.crash', lease_seconds => 0.01); SELECT pg_sleep(0.02);
SELECT attempt FROM idem_outbox_claim('outbox_relay.crash');
SELECT attempts, last_error, dead_at IS NOT NULL AS dead FROM outbox_relay.crash;
-- Again, or given up for good
SELECT outcome FROM idem_outbox_redrive('outbox_relay.o', ARRAY[:'six', :'two', :'nobody']::uuid[]);
SELECT type, attempt FROM idem_outbox_claim('outbox_relay.o');
SELECT outcome FROM idem_outbox_redrive('outbox_relay.crash', ARRAY(SELECT id FROM outbox_relay.crash), skip => true);
SELECT count(*) FROM outbox_relay.crash;
-- Delivered messages can stay for a while: then claims take them away.
SELECT idem_create_outbox('outbox_relay.kept', keep_delivered => '0.05 s');
SELECT count(idem_outbox_put('outbox_relay.kept', 'a', 'b', 'c', '{}')) FROM generate_series(1, 2);
SELECT outcome FROM (SELECT claim_id, array_agg(id) AS ids FROM idem_outbox_claim('outbox_relay.kept') GROUP BY 1) AS c, idem_outbox_ack_many('outbox_relay.kept', claim_id, ids);
SELECT outcome FROM (SELECT claim_id, array_agg(id) AS ids FROM outbox_relay.kept GROUP BY 1) AS c, idem_outbox_ack_many('outbox_relay.kept', claim_id, ids);
SELECT count(*), count(delivered_at) FROM outbox_relay.kept;
SELECT pg_sleep(0.06); SELECT count(*) FROM idem_outbox_claim('outbox_relay.kept'); SELECT count(*) FROM outbox_relay.kept;
-- Bad input
SELECT * FROM idem_outbox_claim('outbox_relay.o', 0);
SELECT * FROM idem_outbox_claim('outbox_relay.o', lease_seconds => 0);
SELECT idem_outbox_nack('outbox_relay.o', :'six', :'claim_id', proof => 'timeout');
SELECT idem_outbox_ack('outbox_relay.o', NULL, :'claim_id');
SELECT * FROM idem_outbox_ack_many('outbox_relay.o', :'claim_id', ARRAY[NULL]::uuid[]);
SELECT * FROM idem_outbox_ack_many('outbox_relay.o', :'claim_id', NULL);
SELECT idem_outbox_renew('outbox_relay.o', :'claim_id', NULL);
SELECT claim_id AS last, id AS last_id FROM outbox_relay.o WHERE type = 't2' \gset
SELECT idem_outbox_ack('outbox_relay.o', :'last_id', :'last', '{"ok": true}');
SELECT idem_outbox_ack('outbox_relay.o', :'last_id', :'last');
SET client_min_messages = warning;
DROP SCHEMA outbox_relay CASCADE;
RESET client_min_messages;
