-- idem_resolve, not_applied: counts after settle_delay, and with probes_required agreeing probes probe_interval apart.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
\set four 44444444-4444-4444-8444-444444444444
\set five 55555555-5555-4555-8555-555555555555
SELECT policy_version FROM idem_register_action_type('resolve_not_applied', 'deduplicated_creation', settle_delay => '0 s',
    probe_interval => '0 s', probes_required => 2);
SELECT decision, provider_key FROM idem_reserve('resolve_not_applied', '{}', action_type => 'resolve_not_applied', attempt_id => :'one',
    lease_seconds => 0.01) \gset
SELECT pg_sleep(0.02);
-- One probe is not enough; its report sent twice is still one probe.
SELECT decision FROM idem_reserve('resolve_not_applied', '{}', action_type => 'resolve_not_applied', attempt_id => :'two', can_reconcile => true);
SELECT state FROM idem_resolve(idem_action_id('resolve_not_applied'), :'two', 'not_applied');
SELECT state FROM idem_resolve(idem_action_id('resolve_not_applied'), :'two', 'not_applied');
SELECT granted, decision FROM idem_reserve('resolve_not_applied', '{}', action_type => 'resolve_not_applied');
SELECT decision FROM idem_reserve('resolve_not_applied', '{}', action_type => 'resolve_not_applied', attempt_id => :'three', can_reconcile => true);
SELECT state FROM idem_resolve(idem_action_id('resolve_not_applied'), :'three', 'not_applied');
SELECT state FROM idem_resolve(idem_action_id('resolve_not_applied'), :'three', 'not_applied');
-- Attempts are left: another one, under the same provider key.
SELECT granted, decision, attempt, provider_key = :'provider_key' AS same_key
FROM idem_reserve('resolve_not_applied', '{}', action_type => 'resolve_not_applied', attempt_id => :'four');
SELECT attempt, reconciling, outcome FROM idem_attempts WHERE action_id = idem_action_id('resolve_not_applied') ORDER BY n;
-- The probes of attempt 1 say nothing about attempt 2.
SELECT idem_mark_unknown(idem_action_id('resolve_not_applied'), :'four');
SELECT decision FROM idem_reserve('resolve_not_applied', '{}', action_type => 'resolve_not_applied', attempt_id => :'five', can_reconcile => true);
SELECT state FROM idem_resolve(idem_action_id('resolve_not_applied'), :'five', 'not_applied');
SELECT state, attempt FROM idem_status('resolve_not_applied');

-- No attempts are left: failed.
SELECT policy_version FROM idem_register_action_type('resolve_not_applied once', 'reversible', max_attempts => 1,
    settle_delay => '0 s', probe_interval => '0 s', probes_required => 1);
SELECT decision FROM idem_reserve('resolve_not_applied once', '{}', action_type => 'resolve_not_applied once', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('resolve_not_applied once', '{}', action_type => 'resolve_not_applied once', attempt_id => :'two', can_reconcile => true);
SELECT state, next_probe_at FROM idem_resolve(idem_action_id('resolve_not_applied once'), :'two', 'not_applied');
SELECT state, next_probe_at FROM idem_resolve(idem_action_id('resolve_not_applied once'), :'two', 'not_applied');
SELECT granted, decision FROM idem_reserve('resolve_not_applied once', '{}', action_type => 'resolve_not_applied once');

-- Before settle_delay is over, counted from the end of the lease, it counts for nothing.
SELECT policy_version FROM idem_register_action_type('resolve_not_applied settle', 'reversible', settle_delay => '1 h',
    probe_interval => '0 s', probes_required => 1);
SELECT decision FROM idem_reserve('resolve_not_applied settle', '{}', action_type => 'resolve_not_applied settle', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('resolve_not_applied settle', '{}', action_type => 'resolve_not_applied settle', attempt_id => :'two', can_reconcile => true);
SELECT state, next_probe_at > clock_timestamp() + interval '59 min' AND next_probe_at <= clock_timestamp() + interval '1 h' AS after_it
FROM idem_resolve(idem_action_id('resolve_not_applied settle'), :'two', 'not_applied');
SELECT granted, decision, retry_after_seconds > 3500 AS wait
FROM idem_reserve('resolve_not_applied settle', '{}', action_type => 'resolve_not_applied settle', can_reconcile => true);
-- Whoever says unknown early may still be sending until its lease is over.
SELECT policy_version FROM idem_register_action_type('resolve_not_applied lease', 'reversible', settle_delay => '0 s',
    probe_interval => '0 s', probes_required => 1);
SELECT decision FROM idem_reserve('resolve_not_applied lease', '{}', action_type => 'resolve_not_applied lease', attempt_id => :'one', lease_seconds => 60);
SELECT idem_mark_unknown(idem_action_id('resolve_not_applied lease'), :'one');
SELECT decision FROM idem_reserve('resolve_not_applied lease', '{}', action_type => 'resolve_not_applied lease', attempt_id => :'two', can_reconcile => true);
SELECT state, next_probe_at > clock_timestamp() + interval '50 s' AS after_the_lease
FROM idem_resolve(idem_action_id('resolve_not_applied lease'), :'two', 'not_applied');
-- The mark counts as well where it comes last: what was found before it is void.
SELECT policy_version FROM idem_register_action_type('resolve_not_applied mark', 'reversible', settle_delay => '1.5 s',
    probe_interval => '0 s', probes_required => 1);
SELECT decision FROM idem_reserve('resolve_not_applied mark', '{}', action_type => 'resolve_not_applied mark', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(1.6);
SELECT decision FROM idem_reserve('resolve_not_applied mark', '{}', action_type => 'resolve_not_applied mark', attempt_id => :'two', can_reconcile => true);
SELECT idem_mark_unknown(idem_action_id('resolve_not_applied mark'), :'one');
SELECT state FROM idem_resolve(idem_action_id('resolve_not_applied mark'), :'two', 'not_applied');
SELECT state FROM idem_status('resolve_not_applied mark');

-- Probes closer than probe_interval do not add up: the next one is not even granted before.
SELECT policy_version FROM idem_register_action_type('resolve_not_applied apart', 'reversible', settle_delay => '0 s',
    probe_interval => '1 h', probes_required => 2);
SELECT decision FROM idem_reserve('resolve_not_applied apart', '{}', action_type => 'resolve_not_applied apart', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('resolve_not_applied apart', '{}', action_type => 'resolve_not_applied apart', attempt_id => :'two', can_reconcile => true);
SELECT state, next_probe_at > clock_timestamp() + interval '59 min' AS in_an_hour
FROM idem_resolve(idem_action_id('resolve_not_applied apart'), :'two', 'not_applied', next_probe_seconds => 1);
SELECT granted, decision FROM idem_reserve('resolve_not_applied apart', '{}', action_type => 'resolve_not_applied apart', can_reconcile => true);

-- Positive evidence shuts it out: a person has to look.
SELECT decision FROM idem_reserve('resolve_not_applied seen', '{}', action_type => 'resolve_not_applied lease', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('resolve_not_applied seen', '{}', action_type => 'resolve_not_applied lease', attempt_id => :'two', can_reconcile => true);
SELECT idem_add_evidence(idem_action_id('resolve_not_applied seen'), :'one', 'applied', NULL, 're_1');
SELECT state, next_probe_at FROM idem_resolve(idem_action_id('resolve_not_applied seen'), :'two', 'not_applied');
SELECT granted, decision FROM idem_reserve('resolve_not_applied seen', '{}', action_type => 'resolve_not_applied lease', can_reconcile => true);
