-- Started with a live lease: pending for everybody else, and nothing is changed.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
SELECT granted FROM idem_reserve('reserve_pending', '{"a": 1}', attempt_id => :'one');
SELECT ctid AS place, xmin AS writer, xmax AS locker FROM idem_action
WHERE action_id = idem_action_id('reserve_pending') \gset before_
SELECT granted, decision, action_id, attempt_id, fence, attempt, state, provider_key, response, response_state
FROM idem_reserve('reserve_pending', '{"a": 1}');
SELECT granted, decision FROM idem_reserve('reserve_pending', '{"a": 1}', attempt_id => :'two');
SELECT granted, decision FROM idem_reserve('reserve_pending', '{"a": 1}', can_reconcile => true);
-- The owner's own token does not bring it back either: this type may not repeat, and the effect may have left.
SELECT granted, decision, attempt_id, fence FROM idem_reserve('reserve_pending', '{"a": 1}', attempt_id => :'one');
-- Another lease, ttl or worker asked for changes nothing either.
SELECT granted, decision FROM idem_reserve('reserve_pending', '{"a": 1}', lease_seconds => 3000, ttl_seconds => 1e8,
    worker => 'other');
SELECT ctid = :'before_place' AND xmin = :'before_writer'::xid AND xmax = :'before_locker'::xid AS untouched
FROM idem_action WHERE action_id = idem_action_id('reserve_pending');
SELECT count(*) AS events FROM idem_event WHERE action_id = idem_action_id('reserve_pending');

-- wait_seconds waits for an outcome, at most that long.
SELECT granted, decision FROM idem_reserve('reserve_pending', '{"a": 1}', wait_seconds => 0.05);
-- An answer that costs no write costs no transaction id.
BEGIN;
SELECT decision FROM idem_reserve('reserve_pending', '{"a": 1}');
SELECT pg_current_xact_id_if_assigned() AS xid;
COMMIT;
-- A renewed lease is a live lease.
SELECT granted FROM idem_reserve('reserve_pending renewed', '{}', attempt_id => :'one', lease_seconds => 0.03);
SELECT idem_renew(idem_action_id('reserve_pending renewed'), :'one', 60) > clock_timestamp() AS renewed;
SELECT pg_sleep(0.04);
SELECT granted, decision FROM idem_reserve('reserve_pending renewed', '{}');
