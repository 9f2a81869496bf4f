-- Committing an external action in the transaction that reserved it: a warning, or a refusal.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
SELECT policy_version FROM idem_register_action_type('same_transaction external', 'deduplicated_creation');
SELECT policy_version FROM idem_register_action_type('same_transaction read', 'read_only');
SELECT policy_version FROM idem_register_action_type('same_transaction local', 'deduplicated_creation', 'local');
SELECT policy_version FROM idem_register_action_type('same_transaction reversible', 'reversible');
SELECT policy_version FROM idem_register_action_type('same_transaction irreversible', 'irreversible', requires_approval => false, marks_dispatch => false);
SELECT policy_version FROM idem_register_action_type('same_transaction marking', 'deduplicated_creation', marks_dispatch => true);
SELECT policy_version FROM idem_register_action_type('same_transaction undo here', 'reversible', 'local');
-- A warning by default
BEGIN;
SELECT granted FROM idem_reserve('same_transaction warn', '{}', action_type => 'same_transaction external', attempt_id => :'one');
SELECT idem_commit(idem_action_id('same_transaction warn'), :'one');
COMMIT;
BEGIN;
SELECT granted FROM idem_reserve('same_transaction read', '{}', action_type => 'same_transaction read', attempt_id => :'one');
SELECT idem_commit(idem_action_id('same_transaction read'), :'one');
COMMIT;
SELECT state FROM idem_status('same_transaction warn');
-- None for a local effect, for a name nobody registered, and after the COMMIT
BEGIN;
SELECT granted FROM idem_reserve('same_transaction local', '{}', action_type => 'same_transaction local', attempt_id => :'one');
SELECT idem_commit(idem_action_id('same_transaction local'), :'one');
COMMIT;
BEGIN;
SELECT granted FROM idem_reserve('same_transaction unregistered', '{}', action_type => 'same_transaction unregistered', attempt_id => :'one');
SELECT idem_commit(idem_action_id('same_transaction unregistered'), :'one');
COMMIT;
SELECT granted FROM idem_reserve('same_transaction two', '{}', action_type => 'same_transaction external', attempt_id => :'one');
SELECT idem_commit(idem_action_id('same_transaction two'), :'one');
SELECT granted FROM idem_reserve('same_transaction two reversible', '{}', action_type => 'same_transaction reversible', attempt_id => :'one');
SELECT idem_commit(idem_action_id('same_transaction two reversible'), :'one');
-- Granted in a subtransaction is granted in the transaction.
BEGIN;
SAVEPOINT s;
SELECT granted FROM idem_reserve('same_transaction savepoint', '{}', action_type => 'same_transaction external', attempt_id => :'one');
RELEASE SAVEPOINT s;
SELECT idem_commit(idem_action_id('same_transaction savepoint'), :'one');
COMMIT;
-- allow and error
BEGIN;
SELECT granted FROM idem_reserve('same_transaction allow', '{}', action_type => 'same_transaction external', attempt_id => :'one');
SET LOCAL pg_idem.same_transaction = 'allow';
SELECT idem_commit(idem_action_id('same_transaction allow'), :'one');
COMMIT;
BEGIN;
SELECT granted FROM idem_reserve('same_transaction error', '{}', action_type => 'same_transaction external', attempt_id => :'one');
SET LOCAL pg_idem.same_transaction = 'error';
SELECT idem_commit(idem_action_id('same_transaction error'), :'one');
ROLLBACK;
BEGIN;
SELECT granted FROM idem_reserve('same_transaction error', '{}', action_type => 'same_transaction local', attempt_id => :'one');
SET LOCAL pg_idem.same_transaction = 'error';
SELECT idem_commit(idem_action_id('same_transaction error'), :'one');
ROLLBACK;
SELECT state FROM idem_status('same_transaction error');
-- Refused for reversible and irreversible types, whatever the setting
BEGIN;
SELECT granted FROM idem_reserve('same_transaction reversible', '{}', action_type => 'same_transaction reversible', attempt_id => :'one');
SELECT idem_commit(idem_action_id('same_transaction reversible'), :'one');
ROLLBACK;
BEGIN;
SELECT granted FROM idem_reserve('same_transaction reversible', '{}', action_type => 'same_transaction reversible', attempt_id => :'one');
SET LOCAL pg_idem.same_transaction = 'allow';
SELECT idem_commit(idem_action_id('same_transaction reversible'), :'one');
ROLLBACK;
BEGIN;
SELECT granted FROM idem_reserve('same_transaction irreversible', '{}', action_type => 'same_transaction irreversible', attempt_id => :'one');
SELECT idem_commit(idem_action_id('same_transaction irreversible'), :'one');
ROLLBACK;
-- and for types that mark their dispatch,
BEGIN;
SELECT granted FROM idem_reserve('same_transaction marking', '{}', action_type => 'same_transaction marking', attempt_id => :'one');
SET LOCAL pg_idem.same_transaction = 'allow';
SELECT idem_commit(idem_action_id('same_transaction marking'), :'one');
ROLLBACK;
-- but not when their effect is in this database.
BEGIN;
SELECT granted FROM idem_reserve('same_transaction undo here', '{}', action_type => 'same_transaction undo here', attempt_id => :'one');
SELECT idem_commit(idem_action_id('same_transaction undo here'), :'one');
COMMIT;
-- Other ends have nothing to warn of.
BEGIN;
SELECT granted FROM idem_reserve('same_transaction release', '{}', action_type => 'same_transaction reversible', attempt_id => :'one');
SELECT idem_release(idem_action_id('same_transaction release'), :'one');
COMMIT;
BEGIN;
SELECT granted FROM idem_reserve('same_transaction unknown', '{}', action_type => 'same_transaction reversible', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('same_transaction unknown'), :'one');
COMMIT;
