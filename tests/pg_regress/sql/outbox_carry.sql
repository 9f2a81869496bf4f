-- The relay is the executor: an action requested in the business transaction is carried by its message.
\set VERBOSITY terse
CREATE SCHEMA outbox_carry;
SELECT idem_create_outbox('outbox_carry.o', max_attempts => 3);
SELECT class FROM idem_register_action_type('outbox_carry refund', 'reversible');
SELECT class FROM idem_register_action_type('outbox_carry local', 'reversible', effect => 'local');
CREATE FUNCTION outbox_carry.put(key text, action_type text = 'outbox_carry refund') RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN idem_outbox_put('outbox_carry.o', 'refund', 'order', key, '{}', action_id => r.action_id) IS NOT NULL THEN 'put' END
    FROM idem_reserve(key, '{}', action_type => action_type) AS r $$;
-- put releases the attempt that its transaction reserved; from then on only the message's relay is granted the action.
SELECT outbox_carry.put('outbox_carry 1');
SELECT carries, headers FROM outbox_carry.o;
SELECT state, attempt FROM idem_status('outbox_carry 1');
SELECT decision, granted FROM idem_reserve('outbox_carry 1', '{}', action_type => 'outbox_carry refund');
SELECT count(*) FROM idem_due(action_type => 'outbox_carry refund');
CREATE TABLE outbox_carry.c AS SELECT * FROM idem_outbox_claim('outbox_carry.o', relay => 'r');
SELECT attempt, attempt_id IS NOT NULL AS attempt_id, fence IS NOT NULL AS fence, provider_key IS NOT NULL AS provider_key FROM outbox_carry.c;
SELECT a.state, a.attempt, a.worker, a.fence = c.fence AS fence FROM idem_actions AS a JOIN outbox_carry.c USING (action_id);
SELECT idem_outbox_renew('outbox_carry.o', claim_id, 600) FROM outbox_carry.c;
SELECT a.lease_expires_at = o.lease_expires_at AS same, o.lease_expires_at > now() + '9 min' AS longer FROM idem_actions AS a JOIN outbox_carry.o AS o USING (action_id);
-- ack commits it in the same transaction.
SELECT idem_outbox_ack('outbox_carry.o', id, claim_id, '{"refund": 7}', 're_7', 'req_7') FROM outbox_carry.c;
SELECT state, response, resource_id, external_request_id FROM idem_status('outbox_carry 1');
SELECT count(*) FROM outbox_carry.o;
SELECT event FROM idem_event WHERE action_id = idem_action_id('outbox_carry 1') ORDER BY n;
-- A failure without proof leaves it unknown, and the message waits for the resolution.
SELECT outbox_carry.put('outbox_carry 2');
SELECT idem_outbox_nack('outbox_carry.o', id, claim_id, 'timed out') FROM idem_outbox_claim('outbox_carry.o');
SELECT state, reason FROM idem_status('outbox_carry 2');
UPDATE outbox_carry.o SET due_at = now();
SELECT count(*) FROM idem_outbox_claim('outbox_carry.o');
SELECT attempts, due_at > clock_timestamp() AS waits FROM outbox_carry.o;
SELECT idem_decide(idem_action_id('outbox_carry 2'), 'applied', 'the provider has it', '{"refund": 8}', 're_8');
UPDATE outbox_carry.o SET due_at = now();
SELECT count(*) FROM idem_outbox_claim('outbox_carry.o');
SELECT count(*) FROM outbox_carry.o;
-- With proof it is tried again, under the action's own rules and the message's.
SELECT outbox_carry.put('outbox_carry 3');
SELECT idem_outbox_nack('outbox_carry.o', id, claim_id, 'refused', 'refused', 0) FROM idem_outbox_claim('outbox_carry.o');
SELECT state, attempt FROM idem_status('outbox_carry 3');
SELECT pg_sleep(0.11);
SELECT o.attempt, a.attempt AS of_the_action FROM idem_outbox_claim('outbox_carry.o') AS o JOIN idem_actions AS a USING (action_id);
SELECT idem_outbox_nack('outbox_carry.o', id, claim_id, proof => 'not_sent', delay_seconds => 0) FROM outbox_carry.o;
SELECT pg_sleep(0.11);
SELECT idem_outbox_nack('outbox_carry.o', id, claim_id, 'not again', 'not_sent') FROM idem_outbox_claim('outbox_carry.o');
SELECT attempts, dead_at IS NOT NULL AS dead, last_error FROM outbox_carry.o;
-- Skipped, it lets the action go.
SELECT decision FROM idem_reserve('outbox_carry 3', '{}', action_type => 'outbox_carry refund');
SELECT outcome FROM idem_outbox_redrive('outbox_carry.o', ARRAY(SELECT id FROM outbox_carry.o), skip => true);
SELECT state FROM idem_status('outbox_carry 3');
SELECT decision FROM idem_reserve('outbox_carry 3', '{}', action_type => 'outbox_carry refund');
-- A claim that lapses follows the action's rules: what may not repeat is unknown.
SELECT outbox_carry.put('outbox_carry 4');
SELECT attempt FROM idem_outbox_claim('outbox_carry.o', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT attempt FROM idem_outbox_claim('outbox_carry.o');
SELECT state, attempt FROM idem_status('outbox_carry 4');
-- The first relay's answer comes late; nobody took over.
SELECT idem_outbox_ack('outbox_carry.o', id, claim_id, '{"refund": 9}') FROM outbox_carry.o;
SELECT state, response FROM idem_status('outbox_carry 4');
SELECT count(*) FROM outbox_carry.o;
-- Of an action that has ended, or whose effect is in this database, a message only tells.
SELECT outbox_carry.put('outbox_carry 1'), outbox_carry.put('outbox_carry 5', 'outbox_carry local');
SELECT carries, headers FROM outbox_carry.o ORDER BY seq;
SELECT state FROM idem_status('outbox_carry 5');
SELECT outcome FROM (SELECT claim_id, array_agg(id) AS ids FROM idem_outbox_claim('outbox_carry.o') GROUP BY 1) AS c, idem_outbox_ack_many('outbox_carry.o', claim_id, ids);
-- Refused: two messages, and an attempt of another transaction
SELECT outbox_carry.put('outbox_carry 6');
SELECT outbox_carry.put('outbox_carry 6');
SELECT decision FROM idem_reserve('outbox_carry 7', '{}', action_type => 'outbox_carry refund');
SELECT outbox_carry.put('outbox_carry 7', 'outbox_carry refund');
-- Rolled back, everything is as it was.
BEGIN;
SELECT decision FROM idem_reserve('outbox_carry 8', '{}', action_type => 'outbox_carry refund');
SAVEPOINT s;
SELECT count(idem_outbox_put('outbox_carry.o', 'refund', 'order', '8', '{}', action_id => idem_action_id('outbox_carry 8')));
ROLLBACK TO s;
SELECT state FROM idem_status('outbox_carry 8');
ROLLBACK;
-- The action ends without its effect: the message is a dead letter.
SELECT idem_mark_unknown(action_id, attempt_id) FROM idem_outbox_claim('outbox_carry.o');
SELECT idem_decide(idem_action_id('outbox_carry 6'), 'not_applied', 'checked');
UPDATE outbox_carry.o SET lease_expires_at = now();
SELECT count(*) FROM idem_outbox_claim('outbox_carry.o');
SELECT dead_at IS NOT NULL AS dead, last_error FROM outbox_carry.o;
-- A row that says it carries somebody's action, and was not put for it, reaches neither the action nor its attempt.
SELECT idem_create_outbox('outbox_carry.f');
SELECT decision FROM idem_reserve('outbox_carry 9', '{}', action_type => 'outbox_carry refund', lease_seconds => 600);
INSERT INTO outbox_carry.f (type, aggregatetype, aggregateid, payload, action_id, carries) VALUES ('refund', 'order', '9', '{}', idem_action_id('outbox_carry 9'), true);
SELECT count(*) FROM idem_outbox_claim('outbox_carry.f');
SELECT dead_at IS NOT NULL AS dead, last_error FROM outbox_carry.f;
UPDATE outbox_carry.f AS f SET dead_at = NULL, due_at = NULL, attempts = 1, claim_id = '00000000-0000-8000-8000-000000000009', lease_expires_at = now() + '1 h', fence = a.fence FROM idem_actions AS a WHERE a.action_id = f.action_id;
SELECT idem_outbox_nack('outbox_carry.f', id, claim_id, proof => 'refused') FROM outbox_carry.f;
SELECT idem_outbox_ack('outbox_carry.f', id, claim_id, '{}') FROM outbox_carry.f;
SELECT outcome FROM (SELECT claim_id, array_agg(id) AS ids FROM outbox_carry.f GROUP BY 1) AS c, idem_outbox_ack_many('outbox_carry.f', claim_id, ids);
SELECT idem_outbox_renew('outbox_carry.f', claim_id, 60) FROM outbox_carry.f;
SELECT state, attempt FROM idem_status('outbox_carry 9');
-- Nor does it let the action go that another message carries.
SELECT outbox_carry.put('outbox_carry 10');
UPDATE outbox_carry.f SET action_id = idem_action_id('outbox_carry 10'), dead_at = now();
SELECT outcome FROM idem_outbox_redrive('outbox_carry.f', ARRAY(SELECT id FROM outbox_carry.f), skip => true);
SELECT decision FROM idem_reserve('outbox_carry 10', '{}', action_type => 'outbox_carry refund');
-- Nor does a copy of the true message in an outbox of somebody's own. A telling message does not come to carry.
INSERT INTO outbox_carry.f (id, type, aggregatetype, aggregateid, payload, action_id, carries) SELECT id, 'refund', 'order', '10', '{}', action_id, true FROM outbox_carry.o WHERE action_id = idem_action_id('outbox_carry 10');
SELECT count(*) FROM idem_outbox_claim('outbox_carry.f');
SELECT dead_at IS NOT NULL AS dead, last_error FROM outbox_carry.f WHERE aggregateid = '10';
SELECT outcome FROM idem_outbox_redrive('outbox_carry.f', ARRAY(SELECT id FROM outbox_carry.f), skip => true);
SELECT decision FROM idem_reserve('outbox_carry 10', '{}', action_type => 'outbox_carry refund');
-- Under another name the outbox is the same.
ALTER TABLE outbox_carry.o RENAME TO renamed;
SELECT aggregateid, attempt FROM idem_outbox_claim('outbox_carry.renamed');
ALTER TABLE outbox_carry.renamed RENAME TO o;
-- A late answer to a dead letter is kept as evidence, and the letter stays where no claim passes it.
SELECT idem_create_outbox('outbox_carry.g', max_attempts => 1);
SELECT count(idem_outbox_put('outbox_carry.g', 'refund', 'order', '11', '{}', action_id => action_id)) FROM idem_reserve('outbox_carry 11', '{}', action_type => 'outbox_carry refund');
SELECT idem_outbox_nack('outbox_carry.g', id, claim_id, 'timed out') FROM idem_outbox_claim('outbox_carry.g');
SELECT idem_decide(idem_action_id('outbox_carry 11'), 'not_applied', 'checked');
SELECT idem_outbox_ack('outbox_carry.g', id, claim_id, '{"late": true}') FROM outbox_carry.g;
SELECT dead_at IS NOT NULL AS dead, due_at FROM outbox_carry.g;
-- A proof counts also after another relay came by, and told again it changes nothing.
SELECT idem_create_outbox('outbox_carry.h');
SELECT count(idem_outbox_put('outbox_carry.h', 'refund', 'order', '12', '{}', action_id => action_id)) FROM idem_reserve('outbox_carry 12', '{}', action_type => 'outbox_carry refund');
SELECT attempt FROM idem_outbox_claim('outbox_carry.h', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT count(*) FROM idem_outbox_claim('outbox_carry.h');
SELECT lease_expires_at FROM outbox_carry.h;
SELECT idem_outbox_nack('outbox_carry.h', id, claim_id, 'timed out') FROM outbox_carry.h;
SELECT idem_outbox_nack('outbox_carry.h', id, claim_id, 'no', 'refused') FROM outbox_carry.h;
SELECT state FROM idem_status('outbox_carry 12');
SELECT due_at FROM outbox_carry.h \gset
SELECT idem_outbox_nack('outbox_carry.h', id, claim_id, 'no', 'refused') FROM outbox_carry.h;
SELECT due_at = :'due_at' AS same FROM outbox_carry.h;
SET client_min_messages = warning;
DROP SCHEMA outbox_carry CASCADE;
RESET client_min_messages;
