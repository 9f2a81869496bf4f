-- DROP EXTENSION with live actions is refused, whatever command leads to it. Rolled back.
\set one 11111111-1111-4111-8111-111111111111
BEGIN;
SELECT decision FROM idem_reserve('drop guard', '{}', attempt_id => :'one');
SAVEPOINT s; DROP EXTENSION pg_idem; ROLLBACK TO s;
\set VERBOSITY sqlstate
SAVEPOINT s; DROP EXTENSION pg_idem CASCADE; ROLLBACK TO s;
SAVEPOINT s; DROP EXTENSION IF EXISTS pg_idem; ROLLBACK TO s;
SAVEPOINT s; DROP SCHEMA public CASCADE; ROLLBACK TO s;
SELECT state FROM idem_status('drop guard');
-- Other drops go on.
CREATE SCHEMA regress_idem_other CREATE TABLE idem_action (n int);
DROP TABLE regress_idem_other.idem_action;
DROP SCHEMA regress_idem_other;
CREATE ROLE regress_idem_owner;
DROP OWNED BY regress_idem_owner;
-- Who is no superuser cannot allow it.
SET LOCAL ROLE regress_idem_owner;
SAVEPOINT s; SET LOCAL pg_idem.allow_drop = on; ROLLBACK TO s;
RESET ROLE;
-- A superuser can.
SET LOCAL client_min_messages = warning;
SET LOCAL pg_idem.allow_drop = on;
DROP EXTENSION pg_idem CASCADE;
SELECT count(*) FROM pg_event_trigger WHERE evtname = 'idem_guard_drop';
ROLLBACK;
SELECT evtname, evtevent, evttags FROM pg_event_trigger WHERE evtname = 'idem_guard_drop';
