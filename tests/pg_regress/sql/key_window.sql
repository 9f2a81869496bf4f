-- provider_key_window: while the provider recognises a repeated key, an open outcome is repeated with the same key; at the edge and outside never.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
\set four 44444444-4444-4444-8444-444444444444
SELECT policy_version FROM idem_register_action_type('key_window', 'deduplicated_creation', provider_key_window => '1 h');
SELECT provider_key FROM idem_reserve('key_window', '{}', action_type => 'key_window', attempt_id => :'one') \gset
SELECT idem_mark_unknown(idem_action_id('key_window'), :'one', 'timed out');
SELECT decision, attempt, provider_key = :'provider_key' AS same_key FROM idem_reserve('key_window', '{}', action_type => 'key_window', attempt_id => :'two');
-- It cannot be renewed past the window's end, which the first grant of the key set.
SELECT idem_renew(idem_action_id('key_window'), :'two', 3600) = created_at + interval '1 h' AS ends_with_the_window FROM idem_action WHERE key = 'key_window';
SELECT idem_mark_unknown(idem_action_id('key_window'), :'two', 'timed out');
-- Ten seconds before the end: whoever needs a minute does not get it, whoever needs five seconds does.
UPDATE idem_action SET created_at = clock_timestamp() - interval '3590 s' WHERE key = 'key_window';
SELECT decision, attempt FROM idem_reserve('key_window', '{}', action_type => 'key_window', attempt_id => :'three', lease_seconds => 60);
SELECT decision, attempt FROM idem_reserve('key_window', '{}', action_type => 'key_window', attempt_id => :'three', lease_seconds => 10.5);
SELECT decision, attempt, provider_key = :'provider_key' AS same_key FROM idem_reserve('key_window', '{}', action_type => 'key_window', attempt_id => :'three', lease_seconds => 5);
SELECT idem_renew(idem_action_id('key_window'), :'three', 60) < clock_timestamp() + interval '11 s' AS not_past_it;
SELECT idem_mark_unknown(idem_action_id('key_window'), :'three', 'timed out');
-- Outside: never, however short.
UPDATE idem_action SET created_at = clock_timestamp() - interval '3601 s' WHERE key = 'key_window';
SELECT decision FROM idem_reserve('key_window', '{}', action_type => 'key_window', attempt_id => :'four', lease_seconds => 0.001);
SELECT decision FROM idem_reserve('key_window', '{}', action_type => 'key_window', attempt_id => :'four', can_reconcile => true);
-- Nobody who holds a lease has it taken by the window; but who runs because of it is given no more time.
SELECT granted FROM idem_reserve('key_window late', '{}', action_type => 'key_window', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('key_window late', '{}', action_type => 'key_window', attempt_id => :'two', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
UPDATE idem_action SET created_at = clock_timestamp() - interval '3601 s' WHERE key = 'key_window late';
SELECT idem_renew(idem_action_id('key_window late'), :'two', 60);
-- A new key has a window of its own; it is given only when nothing is open.
SELECT provider_key FROM idem_reserve('key_window new', '{}', action_type => 'key_window', attempt_id => :'one') \gset
SELECT idem_mark_unknown(idem_action_id('key_window new'), :'one', 'timed out');
SELECT granted FROM idem_reserve('key_window new', '{}', action_type => 'key_window', attempt_id => :'two');
SELECT idem_fail(idem_action_id('key_window new'), :'two', 'refused', retryable => true, retry_after_seconds => 0, new_provider_key => true);
SELECT decision, provider_key = :'provider_key' AS same_key FROM idem_reserve('key_window new', '{}', action_type => 'key_window', attempt_id => :'three');
SELECT provider_key FROM idem_reserve('key_window new 2', '{}', action_type => 'key_window', attempt_id => :'one') \gset
UPDATE idem_action SET created_at = clock_timestamp() - interval '3601 s' WHERE key = 'key_window new 2';
SELECT idem_fail(idem_action_id('key_window new 2'), :'one', 'refused', retryable => true, retry_after_seconds => 0, new_provider_key => true);
SELECT decision, provider_key = :'provider_key' AS same_key FROM idem_reserve('key_window new 2', '{}', action_type => 'key_window', attempt_id => :'two');
SELECT idem_mark_unknown(idem_action_id('key_window new 2'), :'two', 'timed out');
SELECT decision FROM idem_reserve('key_window new 2', '{}', action_type => 'key_window', attempt_id => :'three');
-- A window that is closed or made shorter meanwhile counts for what is under way; one that is opened does not.
SELECT granted FROM unnest('{closed,opened}'::text[]) AS n, LATERAL idem_reserve('key_window ' || n, '{}', action_type => CASE n WHEN 'closed' THEN 'key_window' ELSE 'key_window plain' END, attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('key_window closed'), :'one'), idem_mark_unknown(idem_action_id('key_window opened'), :'one');
SELECT policy_version FROM idem_register_action_type('key_window', 'deduplicated_creation');
SELECT policy_version FROM idem_register_action_type('key_window plain', 'deduplicated_creation', provider_key_window => '1 h');
SELECT decision FROM idem_reserve('key_window closed', '{}', action_type => 'key_window', attempt_id => :'two');
SELECT decision FROM idem_reserve('key_window opened', '{}', action_type => 'key_window plain', attempt_id => :'two');
