-- In a read-only transaction nothing is promised that could not be kept: 25006, replays included.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
SELECT decision FROM idem_reserve('read_only_transaction', '{}', attempt_id => :'one');
SELECT decision FROM idem_reserve('read_only_transaction done', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('read_only_transaction done'), :'one');
BEGIN READ ONLY; SELECT granted FROM idem_reserve('read_only_transaction new', '{}'); ROLLBACK;
BEGIN READ ONLY; SELECT granted FROM idem_reserve('read_only_transaction', '{}'); ROLLBACK;
BEGIN READ ONLY; SELECT granted FROM idem_reserve('read_only_transaction done', '{}'); ROLLBACK;
BEGIN READ ONLY; SELECT idem_commit(idem_action_id('read_only_transaction'), :'one'); ROLLBACK;
BEGIN READ ONLY; SELECT idem_mark_unknown(idem_action_id('read_only_transaction'), :'one'); ROLLBACK;
BEGIN READ ONLY; SELECT idem_fail(idem_action_id('read_only_transaction'), :'one', 'refused'); ROLLBACK;
BEGIN READ ONLY; SELECT idem_renew(idem_action_id('read_only_transaction'), :'one'); ROLLBACK;
BEGIN READ ONLY; SELECT idem_release(idem_action_id('read_only_transaction'), :'one'); ROLLBACK;
BEGIN READ ONLY; SELECT idem_add_evidence(idem_action_id('read_only_transaction'), :'one', 'applied'); ROLLBACK;
BEGIN READ ONLY; SELECT state FROM idem_resolve(idem_action_id('read_only_transaction'), :'one', 'applied'); ROLLBACK;
BEGIN READ ONLY; SELECT policy_version FROM idem_register_action_type('read_only_transaction', 'read_only'); ROLLBACK;
BEGIN READ ONLY; SELECT visited FROM idem_sweep(); ROLLBACK;
SELECT state FROM idem_status('read_only_transaction');
-- Reading is no writing.
BEGIN READ ONLY;
SELECT state FROM idem_status('read_only_transaction');
SELECT state FROM idem_actions WHERE key = 'read_only_transaction';
SELECT idem_action_id('k') = idem_action_id('k', '') AS same, idem_fingerprint('{}') = idem_fingerprint_text('{}') AS same;
COMMIT;
