-- The same key, another fingerprint: conflict, in every state, and the row stays what it is.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
SELECT policy_version FROM idem_register_action_type('reserve_conflict', 'idempotent_mutation', ttl => '0 s');
SELECT name, decision
FROM unnest('{committed,failed,released,retryable due,retryable early,started live,unknown,unknown reconciling}'::text[]) AS name,
    LATERAL idem_reserve('reserve_conflict ' || name, '{"amount": 100}', attempt_id => :'one');
SELECT name, decision FROM unnest('{expired unswept,tombstone}'::text[]) AS name,
    LATERAL idem_reserve('reserve_conflict ' || name, '{"amount": 100}', action_type => 'reserve_conflict',
        attempt_id => :'one', lease_seconds => 0.01);
SELECT idem_mark_unknown(idem_action_id('reserve_conflict unknown'), :'one', 'secret');
SELECT idem_mark_unknown(idem_action_id('reserve_conflict unknown reconciling'), :'one');
SELECT decision FROM idem_reserve('reserve_conflict unknown reconciling', '{"amount": 100}', attempt_id => :'two', can_reconcile => true);
SELECT idem_fail(idem_action_id('reserve_conflict retryable due'), :'one', 'refused', '{"secret": 1}', true, 0);
SELECT idem_fail(idem_action_id('reserve_conflict retryable early'), :'one', 'refused', '{"secret": 1}', true, 60);
SELECT idem_commit(idem_action_id('reserve_conflict committed'), :'one', '{"secret": 1}', 're_1', 'req_1');
SELECT idem_fail(idem_action_id('reserve_conflict failed'), :'one', 'refused', '{"secret": 1}');
SELECT idem_release(idem_action_id('reserve_conflict released'), :'one');
SELECT idem_commit(idem_action_id('reserve_conflict tombstone'), :'one', '{"secret": 1}', 're_1', 'req_1');
SELECT pg_sleep(0.02);
CALL idem_sweep_all();
-- After the sweep, which would end what follows.
SELECT decision FROM idem_reserve('reserve_conflict started lapsed, may repeat', '{"amount": 100}',
    action_type => 'reserve_conflict', attempt_id => :'one', lease_seconds => 0.01);
SELECT decision FROM idem_reserve('reserve_conflict started lapsed', '{"amount": 100}', attempt_id => :'one', lease_seconds => 0.01);
SELECT idem_commit(idem_action_id('reserve_conflict expired unswept'), :'one', '{"secret": 1}', 're_1', 'req_1');
SELECT pg_sleep(0.02);

\set row '(SELECT md5(string_agg(a.ctid || '' '' || a.xmin || '' '' || a::text, '','' ORDER BY key)) FROM idem_action AS a WHERE key LIKE ''reserve\\_conflict %'')'
\set notes '(SELECT (SELECT count(*) FROM idem_open) || '' '' || (SELECT count(*) FROM idem_event) || '' '' || (SELECT count(*) FROM idem_attempt))'
SELECT :row AS row, :notes AS notes \gset before_
-- Nothing of the stored action is shown, whatever else the caller brings.
SELECT substr(a.key, 18) AS stored, a.state, granted, decision, r.attempt_id, r.fence, r.attempt, r.state AS shown, r.lease_expires_at,
    retry_after_seconds, r.response, response_state, r.resource_id, r.external_request_id, r.error, provider_key
FROM (SELECT * FROM idem_action WHERE key LIKE 'reserve\_conflict %' OFFSET 0) AS a,
    LATERAL idem_reserve(a.key, '{"amount": 1000}', action_type => a.action_type) AS r ORDER BY 1;
SELECT decision, count(*), count(r.attempt_id) AS tokens FROM (SELECT * FROM idem_action WHERE key LIKE 'reserve\_conflict %' OFFSET 0) AS a,
    LATERAL idem_reserve(a.key, '{"amount": 1000}', action_type => a.action_type, can_reconcile => true,
        attempt_id => :'one', wait_seconds => 5) AS r GROUP BY 1;
SELECT :row = :'before_row' AS unchanged, :notes = :'before_notes' AS nothing_noted;

-- What is protected is the scope, too.
SELECT granted FROM idem_reserve('reserve_conflict scope', '{}', 't', 'mail', 'user:7', 'order 4821', attempt_id => :'one');
SELECT 'same' AS call, decision FROM idem_reserve('reserve_conflict scope', '{}', 't', 'mail', 'user:7', 'order 4821')
UNION ALL SELECT 'type', decision FROM idem_reserve('reserve_conflict scope', '{}', 't', 'sms', 'user:7', 'order 4821')
UNION ALL SELECT 'actor', decision FROM idem_reserve('reserve_conflict scope', '{}', 't', 'mail', 'user:8', 'order 4821')
UNION ALL SELECT 'no actor', decision FROM idem_reserve('reserve_conflict scope', '{}', 't', 'mail', NULL, 'order 4821')
UNION ALL SELECT 'target', decision FROM idem_reserve('reserve_conflict scope', '{}', 't', 'mail', 'user:7', 'order 4822')
UNION ALL SELECT 'fingerprint', decision FROM idem_reserve('reserve_conflict scope', NULL, 't', 'mail', 'user:7', 'order 4821', idem_fingerprint('[]'))
UNION ALL SELECT 'worker', decision FROM idem_reserve('reserve_conflict scope', '{}', 't', 'mail', 'user:7', 'order 4821', worker => 'x', workflow_id => 'y', session_id => 'z');

-- Numbers that readers of doubles take for the same.
\set pairs '(VALUES (1, ''18446744073709551616'', ''18446744073709551617''), (2, ''9007199254740992'', ''9007199254740993''), (3, ''0.10'', ''0.1000000000000000055''), (4, ''1e23'', ''100000000000000000000000.10''), (5, ''1'', ''"1"''), (6, ''1'', ''true''), (7, ''null'', ''0'')) AS pairs(n, a, b)'
SELECT a, b, r.decision FROM :pairs,
    LATERAL idem_reserve('reserve_conflict number ' || n, ('{"amount":' || a || '}')::jsonb, attempt_id => :'one') AS r ORDER BY n;
SELECT a, b, idem_commit(idem_action_id('reserve_conflict number ' || n), :'one') FROM :pairs ORDER BY n;
SELECT a, b, r.decision, again.decision AS same FROM :pairs,
    LATERAL idem_reserve('reserve_conflict number ' || n, ('{"amount":' || b || '}')::jsonb) AS r,
    LATERAL idem_reserve('reserve_conflict number ' || n, ('{"amount":' || a || '}')::jsonb) AS again ORDER BY n;
