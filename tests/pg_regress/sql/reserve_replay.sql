-- Committed: replay with the stored answer. It writes nothing, locks nothing, and needs no transaction id.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
SELECT decision FROM idem_reserve('reserve_replay', '{"amount": 100, "order": "4821"}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('reserve_replay'), :'one', '{"refund": "re_1", "b": [1.0, 1e400 ]}', 're_1', 'req_9');
SELECT ctid AS place, xmin AS writer FROM idem_action WHERE action_id = idem_action_id('reserve_replay') \gset before_
SELECT granted, decision, attempt_id, fence, attempt, state, lease_expires_at, retry_after_seconds, provider_key
FROM idem_reserve('reserve_replay', '{"amount": 100, "order": "4821"}');
SELECT response = '{"refund": "re_1", "b": [1.0, 1e400]}' AS same_response, length(response::text), response_state,
    resource_id, external_request_id, error
FROM idem_reserve('reserve_replay', '{"amount": 100, "order": "4821"}');
-- The order of the fields, the spelling of the number, a token: no matter.
SELECT granted, decision FROM idem_reserve('reserve_replay', '{"order": "4821", "amount": 1.00e2}', attempt_id => :'two',
    can_reconcile => true, wait_seconds => 5, lease_seconds => 1);
SELECT granted, decision FROM idem_reserve('reserve_replay', fingerprint => idem_fingerprint('{"order":"4821","amount":100}'));
SELECT ctid = :'before_place' AND xmin = :'before_writer'::xid AS unchanged, xmax AS locker
FROM idem_action WHERE action_id = idem_action_id('reserve_replay');
BEGIN;
SELECT decision FROM idem_reserve('reserve_replay', '{"amount": 100, "order": "4821"}');
SELECT pg_current_xact_id_if_assigned() AS xid;
COMMIT;
-- From the snapshot where there is one.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT decision FROM idem_reserve('reserve_replay', '{"amount": 100, "order": "4821"}');
SELECT pg_current_xact_id_if_assigned() AS xid;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT decision, response_state FROM idem_reserve('reserve_replay', '{"amount": 100, "order": "4821"}');
COMMIT;

-- No answer, and the answer null, are two things.
SELECT decision FROM idem_reserve('reserve_replay none', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('reserve_replay none'), :'one');
SELECT decision, response, response_state, resource_id FROM idem_reserve('reserve_replay none', '{}');
SELECT decision FROM idem_reserve('reserve_replay null', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('reserve_replay null'), :'one', 'null');
SELECT decision, response, response_state FROM idem_reserve('reserve_replay null', '{}');

-- In the transaction that committed it, too.
BEGIN;
SELECT decision FROM idem_reserve('reserve_replay here', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('reserve_replay here'), :'one', '{"ok": true}');
SELECT decision, response FROM idem_reserve('reserve_replay here', '{}');
COMMIT;
-- The answer of the attempt that succeeded, without the error of one that did not.
SELECT decision FROM idem_reserve('reserve_replay second', '{}', attempt_id => :'one');
SELECT idem_fail(idem_action_id('reserve_replay second'), :'one', 'refused', '{"code": 429}', true, retry_after_seconds => 0);
SELECT decision, attempt FROM idem_reserve('reserve_replay second', '{}', attempt_id => :'two');
SELECT idem_commit(idem_action_id('reserve_replay second'), :'two', '{"ok": true}');
SELECT decision, attempt, response, error FROM idem_reserve('reserve_replay second', '{}');
