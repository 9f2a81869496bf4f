-- Failed: the word, the error, and never a grant again.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
SELECT decision FROM idem_reserve('reserve_failed', '{}', attempt_id => :'one');
SELECT idem_fail(idem_action_id('reserve_failed'), :'one', 'refused', '{"code": "card_declined"}');
SELECT ctid AS place, xmin AS writer FROM idem_action WHERE action_id = idem_action_id('reserve_failed') \gset before_
SELECT granted, decision, state, attempt, attempt_id, fence, provider_key, response, response_state, error
FROM idem_reserve('reserve_failed', '{}');
SELECT granted, decision FROM idem_reserve('reserve_failed', '{}', can_reconcile => true, attempt_id => :'one', wait_seconds => 5);
BEGIN;
SELECT decision FROM idem_reserve('reserve_failed', '{}');
SELECT pg_current_xact_id_if_assigned() AS xid;
COMMIT;
SELECT ctid = :'before_place' AND xmin = :'before_writer'::xid AS unchanged, xmax AS locker
FROM idem_action WHERE action_id = idem_action_id('reserve_failed');
-- A final failure is shown with its own error, or with none.
SELECT decision FROM idem_reserve('reserve_failed second', '{}', attempt_id => :'one');
SELECT idem_fail(idem_action_id('reserve_failed second'), :'one', 'refused', '{"code": 429}', true, retry_after_seconds => 0);
SELECT decision, attempt FROM idem_reserve('reserve_failed second', '{}', attempt_id => :'two');
SELECT idem_fail(idem_action_id('reserve_failed second'), :'two', 'refused');
SELECT decision, attempt, error FROM idem_reserve('reserve_failed second', '{}');
