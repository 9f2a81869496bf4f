-- idem_renew: more time, from started, while nobody took over.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
SELECT policy_version FROM idem_register_action_type('renew', 'idempotent_mutation', lease => '30 s', max_lease => '2 min');
SELECT decision FROM idem_reserve('renew', '{}', action_type => 'renew', attempt_id => :'one', lease_seconds => 1);
SELECT fence FROM idem_action WHERE action_id = idem_action_id('renew') \gset
SELECT round(extract(epoch FROM idem_renew(idem_action_id('renew'), :'one', 100) - clock_timestamp()) / 10) AS tens_of_seconds;
SELECT idem_renew(idem_action_id('renew'), :'one', 110) AS until \gset
SELECT lease_expires_at = :'until' AS same, state, attempt FROM idem_status('renew');
-- The type's own length where none is said; a shorter one takes nothing away.
SELECT idem_renew(idem_action_id('renew'), :'one') >= clock_timestamp() + interval '29 s' AS at_least_30;
SELECT idem_renew(idem_action_id('renew'), :'one', 120) <= clock_timestamp() + interval '120 s' AS at_most_120;
-- The fence is raised by acquisitions only, and the token stays.
SELECT fence = :fence AS same_fence, attempt_id = :'one' AS same_token FROM idem_action WHERE action_id = idem_action_id('renew');
-- Bounds
SELECT idem_renew(idem_action_id('renew'), :'one', 120.1);
SELECT idem_renew(idem_action_id('renew'), :'one', 0);
SELECT idem_renew(idem_action_id('renew'), :'one', -1);
SELECT idem_renew(idem_action_id('renew'), :'one', 'NaN');
SELECT idem_renew(idem_action_id('renew'), :'one', 'Infinity');
SELECT idem_renew(NULL, :'one');
SELECT idem_renew(idem_action_id('renew'), NULL);
SELECT idem_renew(idem_action_id('renew'), :'three');
SELECT idem_renew(idem_action_id('renew nothing'), :'one');

-- The lease is over and nobody took over: alive again.
SELECT decision FROM idem_reserve('renew lapsed', '{}', action_type => 'renew', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT idem_renew(idem_action_id('renew lapsed'), :'one') > clock_timestamp() AS renewed;
SELECT granted, decision FROM idem_reserve('renew lapsed', '{}', action_type => 'renew');
-- Somebody took over.
SELECT decision FROM idem_reserve('renew lost', '{}', action_type => 'renew', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('renew lost', '{}', action_type => 'renew', attempt_id => :'two');
SELECT idem_renew(idem_action_id('renew lost'), :'one');
-- Not from unknown, retryable, committed or failed
SELECT name, decision FROM unnest('{unknown,retryable,committed,failed}'::text[]) AS name,
    LATERAL idem_reserve('renew ' || name, '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('renew unknown'), :'one');
SELECT idem_release(idem_action_id('renew retryable'), :'one');
SELECT idem_commit(idem_action_id('renew committed'), :'one');
SELECT idem_fail(idem_action_id('renew failed'), :'one', 'refused');
SELECT idem_renew(idem_action_id('renew unknown'), :'one');
SELECT idem_renew(idem_action_id('renew retryable'), :'one');
SELECT idem_renew(idem_action_id('renew committed'), :'one');
SELECT idem_renew(idem_action_id('renew failed'), :'one');
-- A reconciling attempt has a lease of its own.
SELECT decision FROM idem_reserve('renew unknown', '{}', attempt_id => :'two', can_reconcile => true, lease_seconds => 0.05);
SELECT idem_renew(idem_action_id('renew unknown'), :'two', 60) > clock_timestamp() + interval '50 s' AS renewed;
SELECT pg_sleep(0.06);
SELECT decision, retry_after_seconds > 50 AS wait FROM idem_reserve('renew unknown', '{}', can_reconcile => true);
SELECT idem_renew(idem_action_id('renew unknown'), :'two', 3600.1);
SELECT idem_renew(idem_action_id('renew unknown'), :'three');
