-- idem_mark_unknown: the caller cannot tell. From started; again it repeats its answer.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
SELECT policy_version FROM idem_register_action_type('mark_unknown', 'idempotent_mutation');
SELECT decision FROM idem_reserve('mark_unknown', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('mark_unknown'), :'one', 'connection reset', 'req_1');
SELECT state, attempt, reason, external_request_id, lease_expires_at, response_state, ended_at, expires_at FROM idem_status('mark_unknown');
SELECT deadline_at > clock_timestamp() + interval '23 hours' AND deadline_at <= clock_timestamp() + interval '24 hours' AS a_day
FROM idem_status('mark_unknown');
SELECT ctid AS place FROM idem_action WHERE action_id = idem_action_id('mark_unknown') \gset before_
SELECT idem_mark_unknown(idem_action_id('mark_unknown'), :'one', 'connection reset', 'req_1');
SELECT idem_mark_unknown(idem_action_id('mark_unknown'), :'one');
SELECT ctid = :'before_place' AS unchanged FROM idem_action WHERE action_id = idem_action_id('mark_unknown');
SELECT reason FROM idem_status('mark_unknown');
SELECT attempt, reconciling, outcome FROM idem_attempts WHERE action_id = idem_action_id('mark_unknown') ORDER BY n;

-- After the lease, unseen or seen by somebody.
SELECT decision FROM idem_reserve('mark_unknown lapsed', '{}', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT idem_mark_unknown(idem_action_id('mark_unknown lapsed'), :'one');
SELECT decision FROM idem_reserve('mark_unknown seen', '{}', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('mark_unknown seen', '{}');
SELECT idem_mark_unknown(idem_action_id('mark_unknown seen'), :'one', 'too late', 'req_2');
SELECT state, reason, external_request_id FROM idem_status('mark_unknown seen');

-- A message that is odd but storable is stored; one that is not changes nothing.
SELECT decision FROM idem_reserve('mark_unknown odd', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('mark_unknown odd'), :'one', repeat('r', 256));
SELECT idem_mark_unknown(idem_action_id('mark_unknown odd'), :'one', NULL, repeat('r', 256));
SELECT idem_mark_unknown(idem_action_id('mark_unknown odd'), :'one', repeat('r', 1048576));
SELECT state FROM idem_status('mark_unknown odd');
SELECT idem_mark_unknown(idem_action_id('mark_unknown odd'), :'one', E'a\u0001\n' || U&'\FFFD');
SELECT state, reason = E'a\u0001\n' || U&'\FFFD' AS kept FROM idem_status('mark_unknown odd');

-- Superseded, a stranger, a reconciler, no action.
SELECT decision FROM idem_reserve('mark_unknown lost', '{}', action_type => 'mark_unknown', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('mark_unknown lost', '{}', action_type => 'mark_unknown', attempt_id => :'two');
SELECT idem_mark_unknown(idem_action_id('mark_unknown lost'), :'one');
SELECT idem_mark_unknown(idem_action_id('mark_unknown lost'), :'three');
SELECT state, attempt FROM idem_status('mark_unknown lost');
SELECT decision FROM idem_reserve('mark_unknown', '{}', attempt_id => :'two', can_reconcile => true);
SELECT idem_mark_unknown(idem_action_id('mark_unknown'), :'two');
SELECT idem_mark_unknown(idem_action_id('mark_unknown nothing'), :'one');
-- From retryable, committed and failed
SELECT decision FROM idem_reserve('mark_unknown retryable', '{}', attempt_id => :'one');
SELECT idem_release(idem_action_id('mark_unknown retryable'), :'one');
SELECT idem_mark_unknown(idem_action_id('mark_unknown retryable'), :'one');
SELECT decision FROM idem_reserve('mark_unknown committed', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('mark_unknown committed'), :'one');
SELECT idem_mark_unknown(idem_action_id('mark_unknown committed'), :'one');
SELECT decision FROM idem_reserve('mark_unknown failed', '{}', attempt_id => :'one');
SELECT idem_fail(idem_action_id('mark_unknown failed'), :'one', 'refused');
SELECT idem_mark_unknown(idem_action_id('mark_unknown failed'), :'one');
SELECT key, state, reason FROM idem_actions WHERE key IN ('mark_unknown retryable', 'mark_unknown committed', 'mark_unknown failed') ORDER BY key;
SELECT idem_mark_unknown(NULL, :'one');
SELECT idem_mark_unknown(idem_action_id('mark_unknown'), NULL);
