-- max_attempts bounds the attempts that count; a retryable failure of the last one is final.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
SELECT policy_version FROM idem_register_action_type('max_attempts', 'reversible', max_attempts => 2);
SELECT decision, attempt FROM idem_reserve('max_attempts', '{}', action_type => 'max_attempts', attempt_id => :'one');
SELECT idem_fail(idem_action_id('max_attempts'), :'one', 'refused', NULL, true, 0);
SELECT decision, attempt FROM idem_reserve('max_attempts', '{}', action_type => 'max_attempts', attempt_id => :'two');
SELECT idem_fail(idem_action_id('max_attempts'), :'two', 'refused', '{"code": 2}', true, 0);
SELECT granted, decision, attempt, error FROM idem_reserve('max_attempts', '{}', action_type => 'max_attempts');
-- A released attempt does not count.
SELECT decision, attempt FROM idem_reserve('max_attempts released', '{}', action_type => 'max_attempts', attempt_id => :'one');
SELECT idem_release(idem_action_id('max_attempts released'), :'one');
SELECT decision, attempt FROM idem_reserve('max_attempts released', '{}', action_type => 'max_attempts', attempt_id => :'two');
SELECT idem_fail(idem_action_id('max_attempts released'), :'two', 'refused', NULL, true, 0);
SELECT decision, attempt FROM idem_reserve('max_attempts released', '{}', action_type => 'max_attempts', attempt_id => :'three');
SELECT idem_fail(idem_action_id('max_attempts released'), :'three', 'refused', NULL, true, 0);
-- Five where nobody said otherwise.
DO $$
DECLARE
    granted idem_reservation;
    state text;
BEGIN
    FOR n IN 1..6 LOOP
        granted := idem_reserve('max_attempts default', '{}');
        EXIT WHEN NOT granted.granted;
        state := idem_fail(granted.action_id, granted.attempt_id, 'refused', NULL, true, 0);
        RAISE NOTICE 'attempt % of %: %, then %', n, granted.attempt, granted.decision, state;
    END LOOP;
    RAISE NOTICE '%', granted.decision;
END
$$;
-- A reconciling attempt does not count.
SELECT policy_version FROM idem_register_action_type('max_attempts probe', 'reversible', max_attempts => 2,
    settle_delay => '0 s', probe_interval => '0 s', probes_required => 1);
SELECT decision FROM idem_reserve('max_attempts probe', '{}', action_type => 'max_attempts probe', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision, attempt FROM idem_reserve('max_attempts probe', '{}', action_type => 'max_attempts probe', attempt_id => :'two', can_reconcile => true);
SELECT state FROM idem_resolve(idem_action_id('max_attempts probe'), :'two', 'not_applied');
SELECT decision, attempt FROM idem_reserve('max_attempts probe', '{}', action_type => 'max_attempts probe', attempt_id => :'three');
SELECT idem_fail(idem_action_id('max_attempts probe'), :'three', 'refused', NULL, true, 0);
