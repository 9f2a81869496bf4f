-- Settings: those that change answers are for superusers, and have the defaults that the docs print.
\set VERBOSITY sqlstate
BEGIN;
SELECT idem_action_id('load') IS NOT NULL AS loaded;
SELECT name, current_setting(name) AS value, boot_val, unit, context, vartype, enumvals FROM pg_settings
WHERE name IN ('pg_idem.twin_wait', 'pg_idem.max_wait', 'pg_idem.max_response_size', 'pg_idem.same_transaction', 'pg_idem.require_action_type') ORDER BY name;
-- Each has a description that says more than its name.
SELECT count(*) FROM pg_settings WHERE name LIKE 'pg_idem.%' AND (coalesce(short_desc, '') = '' OR length(short_desc) < 20);
-- Values that make no sense are refused.
SAVEPOINT s; SET LOCAL pg_idem.twin_wait = -1; ROLLBACK TO s;
SAVEPOINT s; SET LOCAL pg_idem.max_wait = '-1 s'; ROLLBACK TO s;
SAVEPOINT s; SET LOCAL pg_idem.max_response_size = '2 GB'; ROLLBACK TO s;
SAVEPOINT s; SET LOCAL pg_idem.same_transaction = 'maybe'; ROLLBACK TO s;
SAVEPOINT s; SET LOCAL pg_idem.require_action_type = 'perhaps'; ROLLBACK TO s;
-- An ordinary role cannot change them, not for itself either.
CREATE ROLE regress_idem_settings;
SET LOCAL ROLE regress_idem_settings;
SAVEPOINT s; SET LOCAL pg_idem.twin_wait = 0; ROLLBACK TO s;
SAVEPOINT s; SET LOCAL pg_idem.max_wait = 0; ROLLBACK TO s;
SAVEPOINT s; SET LOCAL pg_idem.max_response_size = 0; ROLLBACK TO s;
SAVEPOINT s; SET LOCAL pg_idem.same_transaction = 'allow'; ROLLBACK TO s;
SAVEPOINT s; SET LOCAL pg_idem.require_action_type = on; ROLLBACK TO s;
SHOW pg_idem.same_transaction;
ROLLBACK;
-- max_wait bounds wait_seconds.
SELECT granted FROM idem_reserve('settings wait', '{}');
BEGIN;
SET LOCAL pg_idem.max_wait = '20 ms';
SELECT clock_timestamp() AS began \gset
SELECT granted, decision FROM idem_reserve('settings wait', '{}', wait_seconds => 50);
SELECT clock_timestamp() - :'began' < interval '10 s' AS bounded;
COMMIT;
