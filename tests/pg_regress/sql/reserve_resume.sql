-- Started, the lease alive, the same attempt_id, and the type may repeat: resume. A lost answer costs nothing.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
SELECT name, policy_version FROM idem_register_action_type('reserve_resume read', 'read_only');
SELECT name, policy_version FROM idem_register_action_type('reserve_resume set', 'idempotent_mutation');
SELECT name, policy_version FROM idem_register_action_type('reserve_resume create', 'deduplicated_creation');
SELECT name, policy_version FROM idem_register_action_type('reserve_resume undo', 'reversible');

SELECT fence, provider_key FROM idem_reserve('reserve_resume', '{}', action_type => 'reserve_resume set',
    attempt_id => :'one') \gset
SELECT ctid AS place FROM idem_action WHERE action_id = idem_action_id('reserve_resume') \gset before_
SELECT granted, decision, attempt_id = :'one' AS own_token, fence = :fence AS same_fence, attempt, state,
    provider_key = :'provider_key' AS same_provider_key
FROM idem_reserve('reserve_resume', '{}', action_type => 'reserve_resume set', attempt_id => :'one');
SELECT ctid = :'before_place' AS unchanged FROM idem_action WHERE action_id = idem_action_id('reserve_resume');
-- As often as wanted, and for reads alike.
SELECT decision FROM idem_reserve('reserve_resume', '{}', action_type => 'reserve_resume set', attempt_id => :'one');
SELECT decision FROM idem_reserve('reserve_resume read', '{}', action_type => 'reserve_resume read', attempt_id => :'one');
SELECT decision FROM idem_reserve('reserve_resume read', '{}', action_type => 'reserve_resume read', attempt_id => :'one');
-- Not with another token, and not with none.
SELECT granted, decision FROM idem_reserve('reserve_resume', '{}', action_type => 'reserve_resume set', attempt_id => :'two');
SELECT granted, decision FROM idem_reserve('reserve_resume', '{}', action_type => 'reserve_resume set');
-- Another request with the owner's token is a conflict first.
SELECT granted, decision, attempt_id FROM idem_reserve('reserve_resume', '{"x": 1}', action_type => 'reserve_resume set',
    attempt_id => :'one');

-- Types that may not repeat: the attempt may have sent its effect, so pending.
SELECT decision FROM idem_reserve('reserve_resume create', '{}', action_type => 'reserve_resume create', attempt_id => :'one');
SELECT granted, decision, attempt_id, fence, provider_key
FROM idem_reserve('reserve_resume create', '{}', action_type => 'reserve_resume create', attempt_id => :'one');
SELECT decision FROM idem_reserve('reserve_resume undo', '{}', action_type => 'reserve_resume undo', attempt_id => :'one');
SELECT granted, decision FROM idem_reserve('reserve_resume undo', '{}', action_type => 'reserve_resume undo', attempt_id => :'one');

-- A token is for one attempt: where it would be granted again the call is refused (22023), and nothing changes.
\set VERBOSITY sqlstate
SELECT granted FROM idem_reserve('reserve_resume lapsed', '{}', action_type => 'reserve_resume read',
    attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT granted FROM idem_reserve('reserve_resume lapsed', '{}', action_type => 'reserve_resume read', attempt_id => :'one');
SELECT state, attempt FROM idem_status('reserve_resume lapsed');
SELECT decision, attempt FROM idem_reserve('reserve_resume lapsed', '{}', action_type => 'reserve_resume read',
    attempt_id => :'two', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
-- An earlier attempt's token as well.
SELECT granted FROM idem_reserve('reserve_resume lapsed', '{}', action_type => 'reserve_resume read', attempt_id => :'one');
-- A reconciling attempt is an attempt.
SELECT decision FROM idem_reserve('reserve_resume reconcile', '{}', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('reserve_resume reconcile', '{}', attempt_id => :'one', can_reconcile => true);
-- retryable
SELECT decision FROM idem_reserve('reserve_resume retryable', '{}', attempt_id => :'one');
SELECT idem_release(idem_action_id('reserve_resume retryable'), :'one');
SELECT decision FROM idem_reserve('reserve_resume retryable', '{}', attempt_id => :'one');
-- Where nothing is granted the token does not matter: the answer is the answer.
SELECT decision FROM idem_reserve('reserve_resume done', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('reserve_resume done'), :'one');
SELECT decision FROM idem_reserve('reserve_resume done', '{}', attempt_id => :'one');
-- The same token for another action is nobody's business.
SELECT decision FROM idem_reserve('reserve_resume other', '{}', attempt_id => :'one');
