-- Unknown: review, execute, reconcile or unknown, in this order.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
SELECT name, policy_version FROM idem_register_action_type('reserve_unknown read', 'read_only');

-- Nobody runs, due, may repeat: the next attempt, and the outcome stays open.
SELECT decision FROM idem_reserve('reserve_unknown repeat', '{}', action_type => 'reserve_unknown read', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('reserve_unknown repeat'), :'one');
SELECT granted, decision, attempt, state, attempt_id = :'two' AS token
FROM idem_reserve('reserve_unknown repeat', '{}', action_type => 'reserve_unknown read', attempt_id => :'two');
SELECT idem_fail(idem_action_id('reserve_unknown repeat'), :'two', 'refused') AS still_open;

-- Nobody runs, may not repeat: wait, and come back.
SELECT decision FROM idem_reserve('reserve_unknown', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('reserve_unknown'), :'one');
SELECT ctid AS place FROM idem_action WHERE action_id = idem_action_id('reserve_unknown') \gset before_
SELECT granted, decision, state, attempt, attempt_id, fence, provider_key, retry_after_seconds > 0 AS wait
FROM idem_reserve('reserve_unknown', '{}');
SELECT granted, decision FROM idem_reserve('reserve_unknown', '{}', attempt_id => :'one');
SELECT ctid = :'before_place' AS unchanged FROM idem_action WHERE action_id = idem_action_id('reserve_unknown');
-- Nobody runs, due, the caller can reconcile.
SELECT granted, decision, state, attempt, r.attempt_id = :'two' AS token, provider_key IS NOT NULL AS provider_key
FROM idem_reserve('reserve_unknown', '{}', attempt_id => :'two', can_reconcile => true, lease_seconds => 60) AS r;
-- A reconciler is alive: unknown, and the time says when its lease ends.
SELECT granted, decision, state, attempt_id, fence, provider_key, retry_after_seconds > 50 AND retry_after_seconds <= 60 AS wait
FROM idem_reserve('reserve_unknown', '{}', attempt_id => :'three', can_reconcile => true);
-- Its lease is over: another one takes over, with a higher fence, and the attempt count stays.
SELECT decision FROM idem_reserve('reserve_unknown reconciler', '{}', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT fence FROM idem_reserve('reserve_unknown reconciler', '{}', attempt_id => :'two', can_reconcile => true,
    lease_seconds => 0.01) \gset
SELECT pg_sleep(0.02);
SELECT granted, decision, attempt, fence > :fence AS fence_rises, attempt_id = :'three' AS token
FROM idem_reserve('reserve_unknown reconciler', '{}', attempt_id => :'three', can_reconcile => true);

-- Not due: the last probe said when to look again.
SELECT decision FROM idem_reserve('reserve_unknown early', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('reserve_unknown early'), :'one');
SELECT decision FROM idem_reserve('reserve_unknown early', '{}', attempt_id => :'two', can_reconcile => true);
SELECT state FROM idem_resolve(idem_action_id('reserve_unknown early'), :'two', 'inconclusive', next_probe_seconds => 60);
SELECT granted, decision, attempt_id, retry_after_seconds > 50 AND retry_after_seconds <= 60 AS wait
FROM idem_reserve('reserve_unknown early', '{}', can_reconcile => true);

-- Positive evidence forbids the repetition, whatever the type; what is left is to reconcile.
SELECT decision FROM idem_reserve('reserve_unknown seen', '{}', action_type => 'reserve_unknown read', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('reserve_unknown seen'), :'one');
SELECT idem_add_evidence(idem_action_id('reserve_unknown seen'), :'one', 'applied');
SELECT granted, decision FROM idem_reserve('reserve_unknown seen', '{}', action_type => 'reserve_unknown read');
SELECT granted, decision FROM idem_reserve('reserve_unknown seen', '{}', action_type => 'reserve_unknown read',
    attempt_id => :'two', can_reconcile => true);
-- While a reconciler of it is alive nothing is repeated either.
SELECT granted, decision FROM idem_reserve('reserve_unknown seen', '{}', action_type => 'reserve_unknown read');

-- Past the deadline: review for everybody, judged at read time, also for types that may repeat.
SELECT policy_version FROM idem_register_action_type('reserve_unknown late', 'read_only', resolve_deadline => '0 s');
SELECT decision FROM idem_reserve('reserve_unknown late', '{}', action_type => 'reserve_unknown late', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('reserve_unknown late'), :'one');
SELECT granted, decision, state, attempt_id, fence, provider_key
FROM idem_reserve('reserve_unknown late', '{}', action_type => 'reserve_unknown late', can_reconcile => true);

-- Escalated: by an ambiguous finding,
SELECT decision FROM idem_reserve('reserve_unknown ambiguous', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('reserve_unknown ambiguous'), :'one');
SELECT decision FROM idem_reserve('reserve_unknown ambiguous', '{}', attempt_id => :'two', can_reconcile => true);
SELECT state FROM idem_resolve(idem_action_id('reserve_unknown ambiguous'), :'two', 'ambiguous');
SELECT granted, decision, attempt_id FROM idem_reserve('reserve_unknown ambiguous', '{}', can_reconcile => true);
-- or because no attempts are left while an outcome is open.
SELECT policy_version FROM idem_register_action_type('reserve_unknown twice', 'read_only', max_attempts => 2);
SELECT decision FROM idem_reserve('reserve_unknown twice', '{}', action_type => 'reserve_unknown twice', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('reserve_unknown twice'), :'one');
SELECT decision FROM idem_reserve('reserve_unknown twice', '{}', action_type => 'reserve_unknown twice', attempt_id => :'two');
SELECT idem_mark_unknown(idem_action_id('reserve_unknown twice'), :'two');
SELECT granted, decision, state, attempt FROM idem_reserve('reserve_unknown twice', '{}', action_type => 'reserve_unknown twice');
SELECT granted, decision FROM idem_reserve('reserve_unknown twice', '{}', action_type => 'reserve_unknown twice', can_reconcile => true);
SELECT state, escalated FROM idem_actions WHERE key = 'reserve_unknown twice';
