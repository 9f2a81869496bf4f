-- Retryable: execute when due, pending with retry_after_seconds before.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
SELECT decision FROM idem_reserve('reserve_retryable', '{}', attempt_id => :'one');
SELECT idem_fail(idem_action_id('reserve_retryable'), :'one', 'refused', '{"code": 429}', true, retry_after_seconds => 0);
SELECT granted, decision, attempt, state, attempt_id = :'two' AS token
FROM idem_reserve('reserve_retryable', '{}', attempt_id => :'two');
SELECT granted, decision FROM idem_reserve('reserve_retryable', '{}');

SELECT decision FROM idem_reserve('reserve_retryable early', '{}', attempt_id => :'one');
SELECT idem_fail(idem_action_id('reserve_retryable early'), :'one', 'refused', NULL, true, retry_after_seconds => 60);
SELECT ctid AS place FROM idem_action WHERE action_id = idem_action_id('reserve_retryable early') \gset before_
SELECT granted, decision, state, attempt, attempt_id, fence, provider_key,
    retry_after_seconds > 50 AND retry_after_seconds <= 60 AS wait
FROM idem_reserve('reserve_retryable early', '{}', can_reconcile => true);
SELECT ctid = :'before_place' AS unchanged FROM idem_action WHERE action_id = idem_action_id('reserve_retryable early');

-- Once the time has come it is due, without anybody's help.
SELECT decision FROM idem_reserve('reserve_retryable soon', '{}', attempt_id => :'one');
SELECT idem_fail(idem_action_id('reserve_retryable soon'), :'one', 'not_sent', NULL, true, retry_after_seconds => 0.05);
SELECT pg_sleep(0.06);
SELECT granted, decision, attempt FROM idem_reserve('reserve_retryable soon', '{}');

-- The type allows fewer attempts by now: failed, and it stays so.
SELECT policy_version FROM idem_register_action_type('reserve_retryable fewer', 'reversible', max_attempts => 3);
SELECT decision FROM idem_reserve('reserve_retryable fewer', '{}', action_type => 'reserve_retryable fewer', attempt_id => :'one');
SELECT idem_fail(idem_action_id('reserve_retryable fewer'), :'one', 'refused', NULL, true, retry_after_seconds => 0);
SELECT policy_version FROM idem_register_action_type('reserve_retryable fewer', 'reversible', max_attempts => 1);
SELECT granted, decision, state, attempt_id FROM idem_reserve('reserve_retryable fewer', '{}', action_type => 'reserve_retryable fewer');
SELECT granted, decision, state FROM idem_reserve('reserve_retryable fewer', '{}', action_type => 'reserve_retryable fewer');

-- Reported as done after all: a discrepancy, and no grant before a person has decided.
SELECT decision FROM idem_reserve('reserve_retryable seen', '{}', attempt_id => :'one');
SELECT idem_release(idem_action_id('reserve_retryable seen'), :'one');
SELECT idem_add_evidence(idem_action_id('reserve_retryable seen'), :'one', 'applied');
SELECT granted, decision, state, attempt_id FROM idem_reserve('reserve_retryable seen', '{}');

-- worker says who is at it, so each attempt brings its own; it is no part of the fingerprint.
SELECT decision FROM idem_reserve('reserve_retryable worker', '{}', attempt_id => :'one', worker => 'first');
SELECT idem_release(idem_action_id('reserve_retryable worker'), :'one');
SELECT decision FROM idem_reserve('reserve_retryable worker', '{}', attempt_id => :'two', worker => 'second');
SELECT worker FROM idem_actions WHERE key = 'reserve_retryable worker';
