-- idem_resolve: ambiguous -> review; inconclusive -> the next probe, later and later.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
SELECT decision FROM idem_reserve('resolve_other ambiguous', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('resolve_other ambiguous'), :'one');
SELECT decision FROM idem_reserve('resolve_other ambiguous', '{}', attempt_id => :'two', can_reconcile => true);
SELECT state, next_probe_at FROM idem_resolve(idem_action_id('resolve_other ambiguous'), :'two', 'ambiguous', candidates => '["re_1", "re_2"]');
SELECT granted, decision, attempt_id FROM idem_reserve('resolve_other ambiguous', '{}', can_reconcile => true);
SELECT needs_review, state FROM idem_status('resolve_other ambiguous');
SELECT candidates FROM idem_event WHERE action_id = idem_action_id('resolve_other ambiguous') AND finding = 'ambiguous';
SELECT queue FROM idem_open WHERE action_id = idem_action_id('resolve_other ambiguous');
SELECT reconciling, outcome FROM idem_attempts WHERE action_id = idem_action_id('resolve_other ambiguous') ORDER BY n;

-- inconclusive: when the caller says, else with back-off, which grows.
SELECT decision FROM idem_reserve('resolve_other told', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('resolve_other told'), :'one');
SELECT decision FROM idem_reserve('resolve_other told', '{}', attempt_id => :'two', can_reconcile => true);
SELECT state, next_probe_at > clock_timestamp() + interval '3590 s' AND next_probe_at <= clock_timestamp() + interval '3600 s' AS an_hour
FROM idem_resolve(idem_action_id('resolve_other told'), :'two', 'inconclusive', evidence => '{"status": 503}', next_probe_seconds => 3600);
-- Again: the same answer, and no second probe.
SELECT state, next_probe_at > clock_timestamp() + interval '3590 s' AS an_hour
FROM idem_resolve(idem_action_id('resolve_other told'), :'two', 'inconclusive', next_probe_seconds => 0);
SELECT granted, decision, retry_after_seconds > 3500 AS wait FROM idem_reserve('resolve_other told', '{}', can_reconcile => true);
SELECT finding, evidence FROM idem_event WHERE action_id = idem_action_id('resolve_other told') AND finding IS NOT NULL;
SELECT policy_version FROM idem_register_action_type('resolve_other', 'reversible', probe_interval => '100 s', backoff_cap => '1000 s');
SELECT decision FROM idem_reserve('resolve_other backoff', '{}', action_type => 'resolve_other', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('resolve_other backoff'), :'one');
SELECT decision FROM idem_reserve('resolve_other backoff', '{}', action_type => 'resolve_other', attempt_id => :'two', can_reconcile => true);
SELECT state, next_probe_at > clock_timestamp() AND next_probe_at <= clock_timestamp() + interval '100 s' AS within_interval
FROM idem_resolve(idem_action_id('resolve_other backoff'), :'two', 'inconclusive');
-- It does not disprove anything, however often.
SELECT policy_version FROM idem_register_action_type('resolve_other often', 'reversible', settle_delay => '0 s',
    probe_interval => '0 s', probes_required => 1);
SELECT decision FROM idem_reserve('resolve_other often', '{}', action_type => 'resolve_other often', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
DO $$
DECLARE
    granted idem_reservation;
    resolution idem_resolution;
BEGIN
    FOR n IN 1..5 LOOP
        granted := idem_reserve('resolve_other often', '{}', action_type => 'resolve_other often', can_reconcile => true);
        resolution := idem_resolve(granted.action_id, granted.attempt_id, 'inconclusive', next_probe_seconds => 0);
        RAISE NOTICE '% %, attempt %, then %', n, granted.decision, granted.attempt, resolution.state;
    END LOOP;
END
$$;
