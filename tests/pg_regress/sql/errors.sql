-- Own errors in full: SQLSTATE, message, DETAIL without secrets, HINT that says what to do.
\set SHOW_CONTEXT never
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
SELECT policy_version FROM idem_register_action_type('errors', 'idempotent_mutation');
SELECT policy_version FROM idem_register_action_type('errors reversible', 'reversible');
SELECT decision FROM idem_reserve('errors secret', '{"secret": 1}', action_type => 'errors', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('errors secret', '{"secret": 1}', action_type => 'errors', attempt_id => :'two');
-- ID002, a later attempt has it
SELECT idem_commit(idem_action_id('errors secret'), :'one', '{"secret": 1}', 'secret');
\echo :SQLSTATE
-- ID002, never an attempt of it
SELECT idem_mark_unknown(idem_action_id('errors secret'), :'three', 'secret');
\echo :SQLSTATE
-- ID003, not in this state
SELECT idem_commit(idem_action_id('errors secret'), :'two', '{"secret": 1}');
SELECT idem_release(idem_action_id('errors secret'), :'two');
\echo :SQLSTATE
SELECT decision FROM idem_reserve('errors reconcile', '{"secret": 1}', attempt_id => :'one');
-- ID003, only a reconciling attempt resolves
SELECT state FROM idem_resolve(idem_action_id('errors reconcile'), :'one', 'applied');
\echo :SQLSTATE
SELECT idem_mark_unknown(idem_action_id('errors reconcile'), :'one');
SELECT decision FROM idem_reserve('errors reconcile', '{"secret": 1}', attempt_id => :'two', can_reconcile => true);
-- ID003, and it does nothing else
SELECT idem_fail(idem_action_id('errors reconcile'), :'two', 'refused');
\echo :SQLSTATE
-- ID004
SELECT idem_commit(idem_action_id('errors secret nobody'), :'one');
\echo :SQLSTATE
-- 22004
SELECT granted FROM idem_reserve(NULL, '{}');
\echo :SQLSTATE
SELECT granted FROM idem_reserve('errors secret', '{}', NULL);
SELECT granted FROM idem_reserve('errors secret', '{}', action_type => NULL);
SELECT idem_commit(NULL, :'one');
-- 22023
SELECT granted FROM idem_reserve('', '{}');
\echo :SQLSTATE
SELECT granted FROM idem_reserve(E'secret\t', '{}');
SELECT granted FROM idem_reserve(repeat('secret', 100), '{}');
SELECT granted FROM idem_reserve('  ', '{}');
SELECT granted FROM idem_reserve('errors secret', '"{\"secret\": 1}"');
SELECT granted FROM idem_reserve('errors secret', '{"secret": 1}', fingerprint => idem_fingerprint('{}'));
SELECT granted FROM idem_reserve('errors secret', fingerprint => '\x00');
SELECT granted FROM idem_reserve('errors secret', '{}', attempt_id => '00000000-0000-0000-0000-000000000000');
SELECT granted FROM idem_reserve('errors secret', '{}', lease_seconds => 0);
SELECT granted FROM idem_reserve('errors lease', '{}', lease_seconds => 3601);
SELECT granted FROM idem_reserve('errors secret', '{}', ttl_seconds => 'NaN');
SELECT idem_fail(idem_action_id('errors reconcile'), :'one', 'timeout');
SELECT idem_add_evidence(idem_action_id('errors reconcile'), :'one', 'maybe');
SELECT idem_commit(idem_action_id('errors reconcile'), :'one', on_lost => 'ignore');
SELECT policy_version FROM idem_register_action_type('errors', 'harmless');
SELECT visited FROM idem_sweep(0);
-- 22023, a token used before
SELECT decision FROM idem_reserve('errors token', '{"secret": 1}', attempt_id => :'one');
SELECT idem_release(idem_action_id('errors token'), :'one');
SELECT decision FROM idem_reserve('errors token', '{"secret": 1}', attempt_id => :'one');
-- 55000
SELECT (idem_reserve('errors twice', '{"secret": 1}')).*;
\echo :SQLSTATE
BEGIN;
SELECT decision FROM idem_reserve('errors here', '{}', action_type => 'errors', attempt_id => :'one');
SELECT idem_commit(idem_action_id('errors here'), :'one');
ROLLBACK;
BEGIN;
SELECT decision FROM idem_reserve('errors here', '{}', action_type => 'errors reversible', attempt_id => :'one');
SELECT idem_commit(idem_action_id('errors here'), :'one');
\echo :SQLSTATE
ROLLBACK;
-- 25006
BEGIN READ ONLY;
SELECT granted FROM idem_reserve('errors read only', '{"secret": 1}');
\echo :SQLSTATE
ROLLBACK;
-- 22P02 and 22P05
SELECT idem_fingerprint_text('{"secret": 1, "secret": 2}');
\echo :SQLSTATE
SELECT idem_fingerprint_text('{"secret": "\ud83d"}');
SELECT idem_fingerprint_text('{"secret": "\u0000"}');
\echo :SQLSTATE
SELECT idem_fingerprint_text('{"secret"}');
-- 42704
BEGIN;
SELECT idem_action_id('load') IS NOT NULL AS loaded;
SET LOCAL pg_idem.require_action_type = on;
SELECT granted FROM idem_reserve('errors unregistered', '{}', action_type => 'secret');
\echo :SQLSTATE
ROLLBACK;
-- 42501
DELETE FROM idem_event;
\echo :SQLSTATE
