-- The story of one action, in the order in which it happened.
\set VERBOSITY sqlstate
\set tell 'SELECT attempt, event, regexp_replace(regexp_replace(regexp_replace(detail, ''actionId=[-0-9a-f]+'', ''actionId=...''), ''fingerprint=[0-9a-f]+'', ''fingerprint=...''), ''by [-a-z_]+'', ''by ...'') AS detail FROM'
SELECT name FROM idem_register_action_type('trace', 'deduplicated_creation', settle_delay => '0', probes_required => 1);

-- Seed: one logical action across many attempts.
SELECT action_id, attempt_id AS one FROM idem_reserve('trace refund', '{"card": "4242"}', 'acme', 'trace', workflow_id => 'wf_9') \gset
:tell idem_trace('trace refund', 'acme');
SELECT idem_mark_unknown(:'action_id', :'one', 'timeout');
SELECT attempt_id AS probe FROM idem_reconcile_next(action_type => 'trace', worker => 'prober 1') \gset
SELECT state FROM idem_resolve(:'action_id', :'probe', 'applied', '{"secret": "s3cr3t"}', 'refund_771', 'req_9', '{"seen": "s3cr3t"}');
:tell idem_trace('trace refund', 'acme');

-- No payload, no token, in any part of it.
SELECT count(*) FROM idem_trace('trace refund', 'acme')
WHERE detail ~ '4242|s3cr3t' OR detail LIKE '%' || :'one' || '%' OR detail LIKE '%' || :'probe' || '%';

-- A first try.
SELECT action_id, attempt_id AS one FROM idem_reserve('trace first', '{}', 'acme', 'trace') \gset
SELECT idem_commit(:'action_id', :'one', '{}', 'refund_1');
:tell idem_trace('trace first', 'acme');

-- A dead attempt that nobody has noticed; noticed, disproved, tried again; a late success; a person.
SELECT action_id, attempt_id AS one FROM idem_reserve('trace long', '{}', 'acme', 'trace', lease_seconds => 0.001) \gset
SELECT pg_sleep(0.01);
:tell idem_trace('trace long', 'acme');
SELECT attempt_id AS probe FROM idem_reconcile_next(action_type => 'trace', worker => 'prober 2') \gset
SELECT state FROM idem_resolve(:'action_id', :'probe', 'not_applied');
SELECT attempt_id AS two FROM idem_reserve('trace long', '{}', 'acme', 'trace') \gset
SELECT idem_commit(:'action_id', :'one', '{}', 'refund_2', on_lost => 'record');
SELECT idem_fail(:'action_id', :'two', 'refused', '{"code": "s3cr3t"}');
SELECT idem_decide(:'action_id', 'applied', 'the provider confirmed refund_2', resource_id => 'refund_2');
:tell idem_trace('trace long', 'acme');
SELECT count(*) FROM (SELECT at, lag(at) OVER () AS before, event FROM idem_trace('trace long', 'acme')) AS t
WHERE before > at AND event <> 'outcome';

-- With its compensation.
SELECT granted FROM idem_compensate(:'action_id', 'trace undo', '{}', 'trace');
:tell idem_trace('trace long', 'acme') WHERE event LIKE 'compensat%';
:tell idem_trace('trace undo', 'acme');

SELECT count(*) FROM idem_trace('trace nothing');
SELECT idem_trace(NULL);
SELECT idem_trace('trace', NULL);
