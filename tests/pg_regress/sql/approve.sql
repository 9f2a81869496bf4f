-- idem_approve: exactly this request under exactly this policy, for a time, once, by somebody else.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
SELECT policy_version FROM idem_register_action_type('approve', 'reversible', requires_approval => true, distinct_approver => 'none');
SELECT decision FROM idem_propose('approve', '{"amount": 50}', action_type => 'approve');
SELECT fingerprint FROM idem_proposals WHERE key = 'approve' \gset
-- Another digest than the one that was looked at: of the document alone, of another amount, under another actor
SELECT idem_approve(idem_action_id('approve'), idem_fingerprint('{"amount": 50}'));
SELECT idem_approve(idem_action_id('approve'), idem_action_fingerprint(idem_fingerprint('{"amount": 5000}'), 'approve'));
SELECT idem_approve(idem_action_id('approve'), idem_action_fingerprint(idem_fingerprint('{"amount": 50}'), 'approve', '', 'ann'));
SELECT idem_approve(idem_action_id('approve'), '\x00');
SELECT idem_approve(idem_action_id('approve'), NULL);
SELECT idem_approve(NULL, :'fingerprint');
SELECT idem_approve(idem_action_id('approve nothing'), :'fingerprint');
SELECT idem_approve(idem_action_id('approve'), :'fingerprint', policy_version => 2);
SELECT idem_approve(idem_action_id('approve'), :'fingerprint', valid_seconds => 0);
SELECT idem_approve(idem_action_id('approve'), :'fingerprint', valid_seconds => 'NaN');
SELECT idem_approve(idem_action_id('approve'), :'fingerprint', repeat('a', 256));
SELECT state FROM idem_proposals WHERE key = 'approve';
-- Approved
SELECT idem_approve(idem_action_id('approve'), :'fingerprint', 'dora', 600, 1, 'checked the order');
SELECT event, role = current_user AS me, session_role = session_user AS login, name, note FROM idem_event WHERE action_id = idem_action_id('approve') ORDER BY n;
SELECT state, approved, request, approval_expires_at > clock_timestamp() + interval '590 s' AND approval_expires_at <= clock_timestamp() + interval '600 s' AS ten_minutes
FROM idem_proposals WHERE key = 'approve';
-- A changed argument is a conflict, and gets nothing of the approval; under a key of its own it needs its own.
SELECT granted, decision FROM idem_reserve('approve', '{"amount": 5000}', action_type => 'approve');
SELECT granted, decision FROM idem_reserve('approve more', '{"amount": 5000}', action_type => 'approve');
SELECT granted, decision FROM idem_reserve('approve', '{"amount": 50}', action_type => 'approve', attempt_id => :'one');
-- One action, one start at a time
SELECT granted, decision FROM idem_reserve('approve', '{"amount": 50}', action_type => 'approve', attempt_id => :'two');
SELECT idem_approve(idem_action_id('approve'), :'fingerprint');
SELECT idem_dispatch(idem_action_id('approve'), :'one') IS NOT NULL AS sent;
SELECT idem_commit(idem_action_id('approve'), :'one');
SELECT idem_approve(idem_action_id('approve'), :'fingerprint');

-- Lapsed between reserve and dispatch: the gate is closed, and so is every later grant.
SELECT decision FROM idem_propose('approve short', '{}', action_type => 'approve');
SELECT idem_approve(action_id, fingerprint, valid_seconds => 0.6) FROM idem_proposals WHERE key = 'approve short';
SELECT granted FROM idem_reserve('approve short', '{}', action_type => 'approve', attempt_id => :'one');
SELECT pg_sleep(0.62);
SELECT idem_dispatch(idem_action_id('approve short'), :'one');
SELECT granted, decision FROM idem_reserve('approve short', '{}', action_type => 'approve', attempt_id => :'one');
SELECT state FROM idem_status('approve short');
SELECT attempt, outcome FROM idem_attempts WHERE action_id = idem_action_id('approve short');
-- Lapsed before anybody started it: rejected.
SELECT decision FROM idem_propose('approve late', '{}', action_type => 'approve');
SELECT idem_approve(action_id, fingerprint, valid_seconds => 0.01) FROM idem_proposals WHERE key = 'approve late';
SELECT pg_sleep(0.02);
SELECT granted, decision FROM idem_reserve('approve late', '{}', action_type => 'approve', attempt_id => :'one');

-- Renewed while retryable and while unknown
SELECT decision FROM unnest('{1,2}'::text[]) AS n, LATERAL idem_propose('approve renew ' || n, '{}', action_type => 'approve');
SELECT idem_approve(action_id, fingerprint, valid_seconds => 1.5) FROM idem_proposals WHERE key LIKE 'approve renew _';
SELECT granted FROM unnest('{1,2}'::text[]) AS n, LATERAL idem_reserve('approve renew ' || n, '{}', action_type => 'approve', attempt_id => :'one');
SELECT idem_dispatch(idem_action_id('approve renew 1'), :'one') IS NOT NULL AS sent;
SELECT idem_dispatch(idem_action_id('approve renew 2'), :'one') IS NOT NULL AS sent;
SELECT idem_fail(idem_action_id('approve renew 1'), :'one', 'refused', retryable => true, retry_after_seconds => 0);
SELECT idem_mark_unknown(idem_action_id('approve renew 2'), :'one');
SELECT pg_sleep(1.5);
SELECT key, state, approved, request FROM idem_proposals WHERE key LIKE 'approve renew _' ORDER BY key;
SELECT granted, decision FROM idem_reserve('approve renew 1', '{}', action_type => 'approve', attempt_id => :'two');
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key LIKE 'approve renew _' ORDER BY key;
SELECT key, state, approved, request FROM idem_proposals WHERE key LIKE 'approve renew _' ORDER BY key;
SELECT granted, decision, attempt FROM idem_reserve('approve renew 1', '{}', action_type => 'approve', attempt_id => :'two');
SELECT idem_fail(idem_action_id('approve renew 1'), :'two', 'refused', retryable => true, retry_after_seconds => 0);

-- For one version of the policy: after a change it is asked for again,
SELECT decision FROM unnest('{1,2}'::text[]) AS n, LATERAL idem_propose('approve change ' || n, '{}', action_type => 'approve');
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key LIKE 'approve change _';
SELECT granted FROM idem_reserve('approve change 2', '{}', action_type => 'approve', attempt_id => :'one');
SELECT policy_version FROM idem_register_action_type('approve', 'reversible', requires_approval => true, distinct_approver => 'none', max_attempts => 7);
SELECT key, state, approved, policy_version FROM idem_proposals WHERE key LIKE 'approve change _' OR key = 'approve renew 1' ORDER BY key;
SELECT idem_approve(action_id, fingerprint, policy_version => 1) FROM idem_proposals WHERE key = 'approve change 1';
SELECT granted, decision, state FROM idem_reserve('approve change 1', '{}', action_type => 'approve', attempt_id => :'one');
SELECT idem_approve(action_id, fingerprint, policy_version => 2) FROM idem_proposals WHERE key = 'approve change 1';
SELECT granted, decision FROM idem_reserve('approve change 1', '{}', action_type => 'approve', attempt_id => :'one');
-- also of one that was renewed before. Something was sent once, so it goes to a person, who renews it.
SELECT granted, decision FROM idem_reserve('approve renew 1', '{}', action_type => 'approve', attempt_id => :'three');
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'approve renew 1';
SELECT granted, decision, attempt FROM idem_reserve('approve renew 1', '{}', action_type => 'approve', attempt_id => :'three');
-- An attempt under way keeps the policy, and the approval, it was granted under.
SELECT idem_dispatch(idem_action_id('approve change 2'), :'one') IS NOT NULL AS sent;
-- Released, it needs a new one, as it would have if nobody had started it.
SELECT decision FROM idem_propose('approve change 3', '{}', action_type => 'approve');
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'approve change 3';
SELECT granted FROM idem_reserve('approve change 3', '{}', action_type => 'approve', attempt_id => :'one');
SELECT idem_release(idem_action_id('approve change 3'), :'one');
SELECT policy_version FROM idem_register_action_type('approve', 'reversible', requires_approval => true, distinct_approver => 'none', max_attempts => 8);
SELECT granted, decision, state FROM idem_reserve('approve change 3', '{}', action_type => 'approve', attempt_id => :'two');
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'approve change 3';
SELECT granted, decision, attempt FROM idem_reserve('approve change 3', '{}', action_type => 'approve', attempt_id => :'two');
-- A type that begins to ask for approval asks it of an attempt that has not passed the gate.
SELECT policy_version FROM idem_register_action_type('approve later', 'reversible', marks_dispatch => true);
SELECT granted FROM idem_reserve('approve later', '{}', action_type => 'approve later', attempt_id => :'one', store_request => true);
SELECT policy_version FROM idem_register_action_type('approve later', 'reversible', requires_approval => true, distinct_approver => 'none');
SELECT idem_dispatch(idem_action_id('approve later'), :'one');
SELECT granted, decision, state FROM idem_reserve('approve later', '{}', action_type => 'approve later', attempt_id => :'one');
