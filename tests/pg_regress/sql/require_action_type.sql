-- pg_idem.require_action_type = on refuses names that nobody registered.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
SELECT policy_version FROM idem_register_action_type('require_action_type', 'reversible');
SELECT granted FROM idem_reserve('require_action_type before', '{}', attempt_id => :'one');
BEGIN;
SELECT idem_action_id('load');
SET LOCAL pg_idem.require_action_type = on;
SELECT granted FROM idem_reserve('require_action_type', '{}', action_type => 'require_action_type');
SAVEPOINT s;
SELECT granted FROM idem_reserve('require_action_type none', '{}');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO SAVEPOINT s;
SELECT granted FROM idem_reserve('require_action_type none', '{}', action_type => 'Require_Action_Type');
ROLLBACK TO SAVEPOINT s;
-- What was begun before can be ended.
SELECT idem_commit(idem_action_id('require_action_type before'), :'one');
COMMIT;
SELECT state FROM idem_status('require_action_type none');
SELECT granted FROM idem_reserve('require_action_type none', '{}');
