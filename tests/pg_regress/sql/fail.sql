-- idem_fail: the effect definitely did not happen.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
SELECT name, decision FROM unnest('{refused,refused again,not sent,not sent again}'::text[]) AS name,
    LATERAL idem_reserve('fail ' || name, '{}', attempt_id => :'one');
SELECT idem_fail(idem_action_id('fail refused'), :'one', 'refused', '{"code": "card_declined"}');
SELECT idem_fail(idem_action_id('fail refused again'), :'one', 'refused', '{"code": 429}', true);
SELECT idem_fail(idem_action_id('fail not sent'), :'one', 'not_sent', '{"code": "dns"}');
SELECT idem_fail(idem_action_id('fail not sent again'), :'one', 'not_sent', '{"code": "dns"}', true, 60, true);
SELECT substr(key, 6) AS name, s.state, s.attempt, s.error, s.lease_expires_at, s.ended_at IS NOT NULL AS ended, extract(day FROM s.expires_at - s.ended_at) AS days_kept,
    round(extract(epoch FROM s.due_at - clock_timestamp()) / 60) AS due_in_minutes
FROM idem_actions AS a, LATERAL idem_status(a.key) AS s WHERE key LIKE 'fail %' ORDER BY 1;
-- Again: the same answer, and nothing is changed.
SELECT md5(string_agg(ctid::text, ' ' ORDER BY key)) AS places FROM idem_action WHERE key LIKE 'fail %' \gset before_
SELECT idem_fail(idem_action_id('fail refused'), :'one', 'refused', '{"code": "card_declined"}');
SELECT idem_fail(idem_action_id('fail refused again'), :'one', 'refused', '{"code": 429}', true);
SELECT idem_fail(idem_action_id('fail not sent'), :'one', 'not_sent', '{"code": "dns"}');
SELECT idem_fail(idem_action_id('fail not sent again'), :'one', 'not_sent', '{"code": "dns"}', true, 60, true);
SELECT md5(string_agg(ctid::text, ' ' ORDER BY key)) = :'before_places' AS unchanged FROM idem_action WHERE key LIKE 'fail %';

-- From unknown by the last attempt, while nobody took over.
SELECT decision FROM idem_reserve('fail unknown', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('fail unknown'), :'one');
SELECT idem_fail(idem_action_id('fail unknown'), :'one', 'refused', '{"code": 1}', true, 0);
SELECT state, error FROM idem_status('fail unknown');
SELECT decision FROM idem_reserve('fail lapsed', '{}', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('fail lapsed', '{}');
SELECT idem_fail(idem_action_id('fail lapsed'), :'one', 'not_sent');
SELECT state FROM idem_status('fail lapsed');
-- A reconciler took over, also when its lease is over.
SELECT decision FROM idem_reserve('fail reconciled', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('fail reconciled'), :'one');
SELECT decision FROM idem_reserve('fail reconciled', '{}', attempt_id => :'two', can_reconcile => true, lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT idem_fail(idem_action_id('fail reconciled'), :'one', 'refused');
SELECT idem_fail(idem_action_id('fail reconciled'), :'two', 'refused');
SELECT state FROM idem_status('fail reconciled');
-- Superseded, a stranger, no action.
SELECT policy_version FROM idem_register_action_type('fail', 'idempotent_mutation');
SELECT decision FROM idem_reserve('fail lost', '{}', action_type => 'fail', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('fail lost', '{}', action_type => 'fail', attempt_id => :'two');
SELECT idem_fail(idem_action_id('fail lost'), :'one', 'refused');
SELECT idem_fail(idem_action_id('fail lost'), :'three', 'refused');
SELECT idem_fail(idem_action_id('fail nothing'), :'one', 'refused');
SELECT state, attempt, error FROM idem_status('fail lost');
-- From committed
SELECT idem_commit(idem_action_id('fail lost'), :'two');
SELECT idem_fail(idem_action_id('fail lost'), :'two', 'refused');
SELECT state FROM idem_status('fail lost');

-- Arguments
SELECT decision FROM idem_reserve('fail arguments', '{}', attempt_id => :'one');
SELECT idem_fail(idem_action_id('fail arguments'), :'one', NULL);
SELECT idem_fail(idem_action_id('fail arguments'), :'one', 'timeout');
SELECT idem_fail(idem_action_id('fail arguments'), :'one', 'refused', NULL, true, -1);
SELECT idem_fail(idem_action_id('fail arguments'), :'one', 'refused', NULL, true, 'NaN');
SELECT idem_fail(idem_action_id('fail arguments'), :'one', 'refused', NULL, true, 'Infinity');
SELECT idem_fail(idem_action_id('fail arguments'), :'one', 'refused', NULL, true, 4e8);
SELECT idem_fail(NULL, :'one', 'refused');
SELECT idem_fail(idem_action_id('fail arguments'), NULL, 'refused');
SELECT state FROM idem_status('fail arguments');
SELECT idem_fail(idem_action_id('fail arguments'), :'one', 'refused', NULL, NULL, NULL, NULL);
