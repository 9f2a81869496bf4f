-- An action granted to a transaction and not ended in it is not granted to it again: 55000.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
-- Expanded, the call runs once for each column; nothing of it stays.
SELECT (idem_reserve('reserve_twice', '{}')).*;
SELECT count(*) FROM idem_action WHERE key = 'reserve_twice';
BEGIN;
SELECT granted FROM idem_reserve('reserve_twice', '{}');
SELECT granted FROM idem_reserve('reserve_twice', '{}');
ROLLBACK;
-- With the same token as well, and where the type may repeat.
SELECT policy_version FROM idem_register_action_type('reserve_twice', 'read_only');
BEGIN;
SELECT granted FROM idem_reserve('reserve_twice', '{}', action_type => 'reserve_twice', attempt_id => :'one');
SELECT granted FROM idem_reserve('reserve_twice', '{}', action_type => 'reserve_twice', attempt_id => :'one');
ROLLBACK;
SELECT count(*) FROM idem_action WHERE key = 'reserve_twice';
-- A reconciling attempt is a grant in this.
SELECT granted FROM idem_reserve('reserve_twice reconcile', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('reserve_twice reconcile'), :'one');
SELECT (idem_reserve('reserve_twice reconcile', '{}', can_reconcile => true)).*;
SELECT decision FROM idem_reserve('reserve_twice reconcile', '{}', can_reconcile => true);
-- Ended in the transaction, it may be asked for again there.
BEGIN;
SELECT decision FROM idem_reserve('reserve_twice ended', '{}', attempt_id => :'one');
SELECT idem_release(idem_action_id('reserve_twice ended'), :'one');
SELECT decision, attempt FROM idem_reserve('reserve_twice ended', '{}', attempt_id => :'two');
SELECT idem_commit(idem_action_id('reserve_twice ended'), :'two');
SELECT decision FROM idem_reserve('reserve_twice ended', '{}');
COMMIT;
-- Granted in a subtransaction that was rolled back, it was never granted.
BEGIN;
SAVEPOINT s;
SELECT decision FROM idem_reserve('reserve_twice savepoint', '{}', attempt_id => :'one');
ROLLBACK TO SAVEPOINT s;
SELECT decision, attempt FROM idem_reserve('reserve_twice savepoint', '{}', attempt_id => :'one');
COMMIT;
SELECT decision, attempt FROM idem_reserve('reserve_twice savepoint', '{}');
-- A rolled back transaction leaves nothing behind: the next one starts over.
BEGIN;
SELECT decision FROM idem_reserve('reserve_twice rollback', '{}');
ROLLBACK;
SELECT decision, attempt FROM idem_reserve('reserve_twice rollback', '{"other": 1}');
-- The next transaction is another one.
SELECT decision FROM idem_reserve('reserve_twice rollback', '{"other": 1}');
-- Two actions in one statement are two actions.
SELECT a.decision, b.decision FROM idem_reserve('reserve_twice a', '{}') AS a, idem_reserve('reserve_twice b', '{}') AS b;
-- One action twice in one statement is one grant, and an error.
SELECT a.decision, b.decision FROM idem_reserve('reserve_twice c', '{}') AS a, idem_reserve('reserve_twice c', '{}') AS b;
SELECT count(*) FROM idem_action WHERE key = 'reserve_twice c';
