-- The same answers at every isolation level.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT granted, decision FROM idem_reserve('isolation_levels rr', '{}', attempt_id => :'one');
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT granted, decision FROM idem_reserve('isolation_levels rr', '{}');
SELECT granted, decision FROM idem_reserve('isolation_levels rr', '[]');
-- There is no waiting for an outcome that this snapshot could not see.
SELECT granted, decision FROM idem_reserve('isolation_levels rr', '{}', wait_seconds => 60);
SELECT idem_renew(idem_action_id('isolation_levels rr'), :'one') > clock_timestamp() AS renewed;
SELECT idem_commit(idem_action_id('isolation_levels rr'), :'one', '{"n": 1}');
SELECT granted, decision, response FROM idem_reserve('isolation_levels rr', '{}');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT granted, decision FROM idem_reserve('isolation_levels ser', '{}', attempt_id => :'one');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT granted, decision FROM idem_reserve('isolation_levels ser', '{}');
SELECT idem_mark_unknown(idem_action_id('isolation_levels ser'), :'one');
SELECT granted, decision FROM idem_reserve('isolation_levels ser', '{}', attempt_id => :'two', can_reconcile => true);
SELECT state FROM idem_resolve(idem_action_id('isolation_levels ser'), :'two', 'applied', '{"n": 1}');
SELECT granted, decision, response FROM idem_reserve('isolation_levels ser', '{}');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT granted, decision, response FROM idem_reserve('isolation_levels ser', '{}');
COMMIT;
