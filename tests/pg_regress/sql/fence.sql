-- fence: strictly rising with every acquisition, reconciling ones included; below 2^53; not ahead of the clock.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
\set four 44444444-4444-4444-8444-444444444444
SELECT policy_version FROM idem_register_action_type('fence', 'reversible', settle_delay => '0 s', probe_interval => '0 s', probes_required => 1);
SELECT extract(epoch FROM clock_timestamp()) * 1000000 AS clock \gset
SELECT fence AS f1 FROM idem_reserve('fence', '{}', action_type => 'fence', attempt_id => :'one') \gset
SELECT idem_release(idem_action_id('fence'), :'one');
SELECT fence AS f2 FROM idem_reserve('fence', '{}', action_type => 'fence', attempt_id => :'two', lease_seconds => 0.01) \gset
SELECT pg_sleep(0.02);
SELECT fence AS f3 FROM idem_reserve('fence', '{}', action_type => 'fence', attempt_id => :'three', can_reconcile => true) \gset
SELECT state FROM idem_resolve(idem_action_id('fence'), :'three', 'not_applied');
SELECT fence AS f4 FROM idem_reserve('fence', '{}', action_type => 'fence', attempt_id => :'four') \gset
SELECT :clock <= :f1 AS from_the_clock, :f1 < :f2 AS after_release, :f2 < :f3 AS at_reconciliation, :f3 < :f4 AS after_disproof,
    :f4 <= extract(epoch FROM clock_timestamp()) * 1000000 AS not_ahead, :f4 < 2::numeric ^ 53 AS fits_double;
-- Nothing else raises it.
SELECT idem_renew(idem_action_id('fence'), :'four') IS NOT NULL AS renewed;
SELECT decision, fence FROM idem_reserve('fence', '{}', action_type => 'fence');
SELECT idem_commit(idem_action_id('fence'), :'four');
SELECT fence = :f4 AS same FROM idem_actions WHERE key = 'fence';
-- Many acquisitions within one microsecond's reach rise all the same.
DO $$
DECLARE
    granted idem_reservation;
    last bigint := 0;
BEGIN
    FOR n IN 1..200 LOOP
        granted := idem_reserve('fence fast', '{}', action_type => 'fence');
        IF granted.fence <= last THEN
            RAISE EXCEPTION 'fence fell at %', n;
        END IF;
        last := granted.fence;
        PERFORM idem_release(granted.action_id, granted.attempt_id);
    END LOOP;
END
$$;
-- Where a clock was ahead, the last fence counts on.
UPDATE idem_action SET fence = 9007199254740000 WHERE key = 'fence fast';
SELECT fence FROM idem_reserve('fence fast', '{}', action_type => 'fence');
