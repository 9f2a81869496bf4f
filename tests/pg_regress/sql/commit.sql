-- idem_commit: from started by the current attempt, while nobody took over.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
SELECT decision FROM idem_reserve('commit', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('commit'), :'one', '{"refund": "re_1"}', 're_1', 'req_1');
SELECT state, attempt, response, response_state, resource_id, external_request_id, lease_expires_at, error, reason
FROM idem_status('commit');
SELECT ended_at IS NOT NULL AND ended_at <= clock_timestamp() AS ended, extract(day FROM expires_at - ended_at) AS days_kept FROM idem_actions WHERE key = 'commit';
-- Again: harmless, and the first answer stands.
SELECT ctid AS place FROM idem_action WHERE action_id = idem_action_id('commit') \gset before_
SELECT idem_commit(idem_action_id('commit'), :'one', '{"refund": "re_1"}', 're_1', 'req_1');
SELECT idem_commit(idem_action_id('commit'), :'one', '{"other": 1}', 're_1', 'req_2');
SELECT idem_commit(idem_action_id('commit'), :'one');
SELECT ctid = :'before_place' AS unchanged FROM idem_action WHERE action_id = idem_action_id('commit');
SELECT response, resource_id, external_request_id FROM idem_status('commit');
-- A first-try commit leaves no history and no place among the open ones.
SELECT (SELECT count(*) FROM idem_open WHERE action_id = a.id) AS open, (SELECT count(*) FROM idem_attempt WHERE action_id = a.id) AS attempts,
    (SELECT count(*) FROM idem_event WHERE action_id = a.id) AS events FROM idem_action_id('commit') AS a(id);

-- The lease is over, but nobody took over.
SELECT decision FROM idem_reserve('commit lapsed', '{}', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT idem_commit(idem_action_id('commit lapsed'), :'one', '{}');
SELECT decision, response FROM idem_reserve('commit lapsed', '{}');
-- The second attempt's commit is in the history.
SELECT decision FROM idem_reserve('commit second', '{}', attempt_id => :'one');
SELECT idem_release(idem_action_id('commit second'), :'one');
SELECT decision FROM idem_reserve('commit second', '{}', attempt_id => :'two');
SELECT idem_commit(idem_action_id('commit second'), :'two', '{"n": 2}');
SELECT attempt, reconciling, outcome FROM idem_attempts WHERE action_id = idem_action_id('commit second') ORDER BY n;
-- The first attempt is out of it.
SELECT idem_commit(idem_action_id('commit second'), :'one', '{"n": 1}');
SELECT state, response FROM idem_status('commit second');

-- Who never was an attempt, and what is no action.
SELECT idem_commit(idem_action_id('commit'), :'three');
SELECT decision FROM idem_reserve('commit stranger', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('commit stranger'), :'three');
SELECT idem_commit(idem_action_id('commit stranger'), :'three', on_lost => 'record');
SELECT state FROM idem_status('commit stranger');
SELECT idem_commit(idem_action_id('commit nothing'), :'one');
-- From retryable and failed: there is no attempt to commit.
SELECT decision FROM idem_reserve('commit retryable', '{}', attempt_id => :'one');
SELECT idem_release(idem_action_id('commit retryable'), :'one');
SELECT idem_commit(idem_action_id('commit retryable'), :'one');
SELECT decision FROM idem_reserve('commit failed', '{}', attempt_id => :'one');
SELECT idem_fail(idem_action_id('commit failed'), :'one', 'refused');
SELECT idem_commit(idem_action_id('commit failed'), :'one');
SELECT key, state FROM idem_actions WHERE key IN ('commit retryable', 'commit failed') ORDER BY key;

-- Arguments
SELECT idem_commit(NULL, :'one');
SELECT idem_commit(idem_action_id('commit stranger'), NULL);
SELECT idem_commit(idem_action_id('commit stranger'), :'one', resource_id => repeat('r', 256));
SELECT idem_commit(idem_action_id('commit stranger'), :'one', external_request_id => repeat('r', 256));
SELECT idem_commit(idem_action_id('commit stranger'), :'one', on_lost => 'ignore');
SELECT state FROM idem_status('commit stranger');
SELECT idem_commit(idem_action_id('commit stranger'), :'one', NULL, NULL, NULL, NULL);
