-- idem_propose and idem_reserve put an action forward that needs approval; neither grants it.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
SELECT policy_version FROM idem_register_action_type('propose', 'irreversible', distinct_approver => 'none');
SELECT granted, decision, attempt_id, fence, attempt, state, lease_expires_at, provider_key, action_id = idem_action_id('propose') AS id
FROM idem_propose('propose', '{"order": 7}', action_type => 'propose', actor => 'ann', target => 'order 7', proposer => 'carl', workflow_id => 'w', session_id => 's', payload_version => '1', policy_version => 1);
-- Again, by either way: it waits.
SELECT granted, decision FROM idem_propose('propose', '{"order": 7}', action_type => 'propose', actor => 'ann', target => 'order 7');
SELECT granted, decision FROM idem_reserve('propose', '{"order": 7}', action_type => 'propose', actor => 'ann', target => 'order 7', attempt_id => :'one');
SELECT granted, decision FROM idem_reserve('propose by reserve', '{"order": 7}', action_type => 'propose', lease_seconds => 5);
SELECT event, role = current_user AS me, session_role = session_user AS login, name FROM idem_event WHERE action_id IN (idem_action_id('propose'), idem_action_id('propose by reserve')) ORDER BY name;
SELECT workflow_id, session_id, payload_version, attempt, state FROM idem_actions WHERE key = 'propose';
-- Something else under the same key is a conflict, whoever asks.
SELECT granted, decision FROM idem_propose('propose', '{"order": 8}', action_type => 'propose', actor => 'ann', target => 'order 7');
SELECT granted, decision FROM idem_reserve('propose', '{"order": 7}', action_type => 'propose', actor => 'bob', target => 'order 7');
-- What an approver sees
SELECT key, action_type, actor, target, state, request, fingerprint = idem_action_fingerprint(idem_fingerprint(request), action_type, tenant, actor, target) AS fingerprint,
    policy_version, proposed_at <= clock_timestamp() AS at, proposer_role = current_user AS me, proposer_session_role = session_user AS login, proposer,
    approval_expires_at > clock_timestamp() + interval '59 min' AS lapses, approved, workflow_id, session_id
FROM idem_proposals WHERE key LIKE 'propose%' ORDER BY key;
SELECT key, queue FROM idem_open JOIN idem_action USING (action_id) WHERE key LIKE 'propose%' ORDER BY key;
-- Approved, it still is nothing for a proposer, and execute for who reserves it.
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'propose';
SELECT granted, decision, state FROM idem_propose('propose', '{"order": 7}', action_type => 'propose', actor => 'ann', target => 'order 7');
SELECT granted, decision, attempt, provider_key FROM idem_reserve('propose', '{"order": 7}', action_type => 'propose', actor => 'ann', target => 'order 7', attempt_id => :'one');
SELECT granted, decision, state FROM idem_propose('propose', '{"order": 7}', action_type => 'propose', actor => 'ann', target => 'order 7');
SELECT idem_dispatch(idem_action_id('propose'), :'one') IS NOT NULL AS sent;
SELECT idem_commit(idem_action_id('propose'), :'one', '{"done": true}');
SELECT granted, decision, response FROM idem_propose('propose', '{"order": 7}', action_type => 'propose', actor => 'ann', target => 'order 7');
SELECT key FROM idem_proposals WHERE key = 'propose';

-- A request that is not to be kept is kept until it is decided.
SELECT decision FROM idem_propose('propose kept', '{"secret": 1}', action_type => 'propose', store_request => false);
SELECT decision FROM idem_reserve('propose kept 2', '{"secret": 1}', action_type => 'propose', store_request => false);
SELECT decision FROM idem_reserve('propose kept 3', '{"secret": 1}', action_type => 'propose');
SELECT key, request FROM idem_proposals WHERE key LIKE 'propose kept%' ORDER BY key;
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'propose kept';
SELECT idem_reject(idem_action_id('propose kept 2')), idem_approve(idem_action_id('propose kept 3'), fingerprint) FROM idem_proposals WHERE key = 'propose kept 3';
SELECT key, request, approved FROM idem_proposals WHERE key LIKE 'propose kept%' ORDER BY key;
SELECT decision FROM idem_reserve('propose kept', '{"secret": 1}', action_type => 'propose', store_request => false);
SELECT key, state, request FROM idem_action WHERE key LIKE 'propose kept%' ORDER BY key;
-- Put forward anew, it has to be seen anew: by asking again.
SELECT idem_reopen(idem_action_id('propose kept 2'), 'second thoughts');
SELECT request, state FROM idem_proposals WHERE key = 'propose kept 2';
SELECT idem_approve(action_id, fingerprint) FROM idem_proposals WHERE key = 'propose kept 2';
SELECT decision FROM idem_reserve('propose kept 2', '{"secret": 1}', action_type => 'propose', store_request => false);
SELECT idem_approve(action_id, fingerprint), request FROM idem_proposals WHERE key = 'propose kept 2';
SELECT key, request FROM idem_proposals WHERE key = 'propose kept 2';

-- Lapsed: rejected, whoever asks first.
SELECT policy_version FROM idem_register_action_type('propose short', 'irreversible', approval_ttl => '10 ms', distinct_approver => 'none');
SELECT decision FROM unnest('{1,2,3}'::text[]) AS n, LATERAL idem_propose('propose lapsed ' || n, '{}', action_type => 'propose short');
SELECT pg_sleep(0.02);
SELECT count(*) FROM idem_proposals WHERE key LIKE 'propose lapsed%';
SELECT idem_approve(idem_action_id('propose lapsed 1'), fingerprint) FROM idem_action WHERE key = 'propose lapsed 1';
SELECT granted, decision, state FROM idem_reserve('propose lapsed 1', '{}', action_type => 'propose short');
SELECT granted, decision, state FROM idem_propose('propose lapsed 2', '{}', action_type => 'propose short');
SELECT idem_sweep() IS NOT NULL AS swept;
SELECT key, state FROM idem_actions WHERE key LIKE 'propose lapsed%' ORDER BY key;
SELECT event FROM idem_event WHERE action_id = idem_action_id('propose lapsed 3') ORDER BY n;

-- Refused
SELECT count(*) AS actions FROM idem_action \gset before_
SELECT decision FROM idem_propose('propose bad', '{}');
SELECT decision FROM idem_propose('propose bad', NULL, action_type => 'propose');
SELECT decision FROM idem_propose('propose bad', NULL, action_type => 'propose', fingerprint => idem_fingerprint('{}'));
SELECT decision FROM idem_reserve('propose bad', NULL, action_type => 'propose', fingerprint => idem_fingerprint('{}'));
SELECT decision FROM idem_propose(NULL, '{}', action_type => 'propose');
SELECT decision FROM idem_propose('propose bad', '{}', NULL, action_type => 'propose');
SELECT decision FROM idem_propose('propose bad', '{}', action_type => NULL);
SELECT decision FROM idem_propose('propose bad', '{}', action_type => 'propose', policy_version => 7);
SELECT decision FROM idem_propose('propose bad', '{}', action_type => 'propose', proposer => repeat('p', 256));
SELECT decision FROM idem_propose('propose bad', '"{}"', action_type => 'propose');
-- A type that tells people apart by name wants one.
SELECT policy_version FROM idem_register_action_type('propose named', 'irreversible', distinct_approver => 'name');
SELECT decision FROM idem_reserve('propose bad', '{}', action_type => 'propose named');
SELECT decision FROM idem_propose('propose bad', '{}', action_type => 'propose named', proposer => ' ');
SELECT count(*) = :before_actions AS unchanged FROM idem_action;
