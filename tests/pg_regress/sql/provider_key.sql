-- provider_key: one for all attempts of an action, until one definitely had no effect and a new key is asked for.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
\set four 44444444-4444-4444-8444-444444444444
SELECT provider_key FROM idem_reserve('provider_key', '{}', attempt_id => :'one') \gset first_
SELECT substr(:'first_provider_key', 15, 1) AS version, :'first_provider_key' <> idem_action_id('provider_key')::text AS not_the_action_id;
SELECT provider_key <> :'first_provider_key' AS another FROM idem_reserve('provider_key other', '{}');
SELECT provider_key <> :'first_provider_key' AS another FROM idem_reserve('provider_key', '{}', 'tenant');
-- The same after a release and a failure that asks for nothing.
SELECT idem_release(idem_action_id('provider_key'), :'one');
SELECT attempt, provider_key = :'first_provider_key' AS same FROM idem_reserve('provider_key', '{}', attempt_id => :'two');
SELECT idem_fail(idem_action_id('provider_key'), :'two', 'refused', NULL, true, 0);
SELECT attempt, provider_key = :'first_provider_key' AS same FROM idem_reserve('provider_key', '{}', attempt_id => :'three');
-- Another one, once, for all attempts that follow.
SELECT idem_fail(idem_action_id('provider_key'), :'three', 'refused', NULL, true, 0, new_provider_key => true);
SELECT idem_fail(idem_action_id('provider_key'), :'three', 'refused', NULL, true, 0, new_provider_key => true);
SELECT attempt, provider_key AS key, provider_key <> :'first_provider_key' AS another
FROM idem_reserve('provider_key', '{}', attempt_id => :'four') \gset second_
SELECT :'second_attempt' AS attempt, :'second_another' AS another;
SELECT idem_mark_unknown(idem_action_id('provider_key'), :'four');
-- A reconciler asks the provider under the key that was used.
SELECT decision, provider_key = :'second_key' AS same FROM idem_reserve('provider_key', '{}', can_reconcile => true);
-- What is failed for good keeps no key to show.
SELECT decision, provider_key FROM idem_reserve('provider_key failed', '{}', attempt_id => :'one') \gset
SELECT idem_fail(idem_action_id('provider_key failed'), :'one', 'refused', new_provider_key => true);
SELECT decision, provider_key FROM idem_reserve('provider_key failed', '{}');
