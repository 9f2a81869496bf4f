-- Compensation: a new linked action; the original stays as it was.
\set VERBOSITY sqlstate
SELECT name FROM idem_register_action_type('compensate.book', 'reversible', effect => 'external');
SELECT name FROM idem_register_action_type('compensate.cancel', 'deduplicated_creation');
UPDATE idem_action_type SET compensation_type = 'compensate.cancel' WHERE name = 'compensate.book';

-- Seed: cancel or compensate. A new, explicitly named action with its own key.
SELECT action_id AS booked, attempt_id FROM idem_reserve('compensate booked', '{"room": 7}', 'acme', 'compensate.book') \gset
SELECT idem_commit(:'booked', :'attempt_id', '{"id": "bk_1"}', 'bk_1');
SELECT granted, decision, attempt, state FROM idem_compensate(:'booked', 'compensate cancel', '{"cancel": "bk_1"}');
SELECT key, tenant, action_type, state FROM idem_actions WHERE key = 'compensate cancel';
-- Its key again is a retry of it, and another request under it a conflict.
SELECT granted, decision FROM idem_compensate(:'booked', 'compensate cancel', '{"cancel": "bk_1"}');
SELECT granted, decision FROM idem_compensate(:'booked', 'compensate cancel', '{"cancel": "bk_2"}');
-- One at a time, and none of a compensation.
SELECT idem_compensate(:'booked', 'compensate cancel twice', '{"cancel": "bk_1"}');
SELECT action_id AS cancelled, attempt_id FROM idem_action WHERE key = 'compensate cancel' \gset
SELECT idem_commit(:'cancelled', :'attempt_id', '{"id": "cn_1"}', 'cn_1');
SELECT idem_compensate(:'cancelled', 'compensate book again', '{}', 'compensate.book');
SELECT idem_compensate(:'booked', 'compensate cancel twice', '{"cancel": "bk_1"}');
SELECT decision, response FROM idem_compensate(:'booked', 'compensate cancel', '{"cancel": "bk_1"}');
-- The original stays, and one row shows both outcomes.
SELECT state, response, resource_id FROM idem_status('compensate booked', 'acme');
SELECT key, state, resource_id, compensation_key, compensation_type, compensation_state, compensation_resource_id, stands
FROM idem_compensations WHERE key = 'compensate booked';

-- Failure 56: three actions committed, committed, unknown; the unclear one is reconciled first, and nothing done is said so.
CREATE TEMP TABLE steps AS SELECT k, r.action_id, r.attempt_id FROM unnest('{one,two,three,four}'::text[]) AS k,
    LATERAL idem_reserve('compensate step ' || k, '{}', 'acme', 'compensate.book') AS r;
SELECT k, idem_commit(action_id, attempt_id) FROM steps WHERE k IN ('one', 'two') ORDER BY k;
SELECT k, idem_mark_unknown(action_id, attempt_id) FROM steps WHERE k = 'three';
SELECT k, idem_fail(action_id, attempt_id, 'refused') FROM steps WHERE k = 'four';
SELECT c.decision FROM steps, LATERAL idem_compensate(action_id, 'compensate undo ' || k, '{}') AS c WHERE k = 'one';
SELECT c.decision FROM steps, LATERAL idem_compensate(action_id, 'compensate undo ' || k, '{}') AS c WHERE k = 'two';
\set VERBOSITY default
SELECT c.decision FROM steps, LATERAL idem_compensate(action_id, 'compensate undo ' || k, '{}') AS c WHERE k = 'three';
SELECT c.decision FROM steps, LATERAL idem_compensate(action_id, 'compensate undo ' || k, '{}') AS c WHERE k = 'four';
\set VERBOSITY sqlstate
SELECT count(*) FROM idem_actions WHERE key IN ('compensate undo three', 'compensate undo four');
SELECT idem_decide(action_id, 'applied', 'found') FROM steps WHERE k = 'three';
SELECT c.decision FROM steps, LATERAL idem_compensate(action_id, 'compensate undo ' || k, '{}') AS c WHERE k = 'three';

-- A compensation that failed makes room for another, and then stays where it is.
SELECT action_id AS undo, attempt_id FROM idem_action WHERE key = 'compensate undo two' \gset
SELECT action_id AS step FROM steps WHERE k = 'two' \gset
SELECT idem_fail(:'undo', :'attempt_id', 'refused');
SELECT decision FROM idem_compensate(:'step', 'compensate undo two', '{}');
SELECT decision FROM idem_compensate(:'step', 'compensate undo two by hand', '{}');
SELECT idem_reopen(:'undo', 'try again');
SELECT idem_decide(:'undo', 'retry', 'try again');
SELECT idem_decide(:'undo', 'applied', 'it happened after all');
SELECT compensation_key, compensation_state, stands FROM idem_compensations WHERE action_id = :'step' ORDER BY made_at;

-- A parent turns out not to have happened: first what was to compensate it has to be cancelled, so that nobody carries
-- that out.
SELECT action_id AS undo, attempt_id FROM idem_action WHERE key = 'compensate undo one' \gset
SELECT action_id AS step FROM steps WHERE k = 'one' \gset
SELECT idem_fail(:'undo', :'attempt_id', 'refused', retryable => true, retry_after_seconds => 0);
\set VERBOSITY default
SELECT idem_decide(:'step', 'not_applied', 'it was another room');
\set VERBOSITY sqlstate
SELECT idem_decide(:'step', 'retry', 'it was another room');
SELECT idem_decide(:'step', 'applied', 'it was this room');
SELECT idem_cancel(:'undo', 'nothing to undo');
SELECT idem_decide(:'step', 'not_applied', 'it was another room');
SELECT decision FROM idem_compensate(:'step', 'compensate undo one', '{}');
SELECT idem_compensate(:'step', 'compensate undo one again', '{}');

-- Partly applied: a place among what is unresolved until it is compensated.
SELECT action_id AS partly, attempt_id FROM idem_reserve('compensate partly', '{}', 'acme', 'compensate.book') \gset
SELECT idem_mark_unknown(:'partly', :'attempt_id');
SELECT attempt_id FROM idem_reserve('compensate partly', '{}', 'acme', 'compensate.book', can_reconcile => true) \gset
SELECT state FROM idem_resolve(:'partly', :'attempt_id', 'partially_applied', resource_id => 'bk_half');
SELECT key, state, needs_compensation, resource_id, next_step FROM idem_unresolved WHERE key LIKE 'compensate %';
SELECT granted FROM idem_compensate(:'partly', 'compensate undo partly', '{}');
SELECT key FROM idem_unresolved WHERE key LIKE 'compensate %';

-- A record with an open compensation outlives its retention, and goes when that has ended.
SELECT name FROM idem_register_action_type('compensate.brief', 'idempotent_mutation', ttl => '0', tombstone_ttl => '0');
SELECT action_id AS brief, attempt_id FROM idem_reserve('compensate brief', '{}', 'acme', 'compensate.brief', ttl_seconds => 1, lease_seconds => 0.001) \gset
-- Past the first visit, so that its end is noted among the open actions.
DO $$ BEGIN PERFORM pg_sleep(0.01); END $$;
SELECT idem_commit(:'brief', :'attempt_id', '{"n": 1}');
SELECT action_id AS undo, attempt_id FROM idem_compensate(:'brief', 'compensate undo brief', '{}', 'compensate.cancel') \gset
UPDATE idem_action SET expires_at = clock_timestamp() WHERE action_id = :'brief';
UPDATE idem_open SET visit_at = clock_timestamp() WHERE action_id = :'brief';
SELECT unknown, removed FROM idem_sweep();
SELECT state, response FROM idem_action WHERE action_id = :'brief';
SELECT visit_at > clock_timestamp() + interval '30 min' AS later FROM idem_open WHERE action_id = :'brief';
SELECT idem_commit(:'undo', :'attempt_id');
UPDATE idem_open SET visit_at = clock_timestamp() WHERE action_id = :'brief';
SELECT unknown, removed FROM idem_sweep();
SELECT state, response FROM idem_action WHERE action_id = :'brief';

-- A compensation's tombstone stays as long as its parent's record: the parent is compensated once.
SELECT name FROM idem_register_action_type('compensate.fleeting', 'idempotent_mutation', ttl => '0', tombstone_ttl => '0');
SELECT action_id AS charge, attempt_id FROM idem_reserve('compensate charge', '{}', 'acme', 'compensate.brief', ttl_seconds => 31536000) \gset
SELECT idem_commit(:'charge', :'attempt_id', '{"n": 1}');
SELECT action_id AS refund, attempt_id FROM idem_compensate(:'charge', 'compensate refund', '{}', 'compensate.fleeting', lease_seconds => 0.001) \gset
DO $$ BEGIN PERFORM pg_sleep(0.01); END $$;
SELECT idem_commit(:'refund', :'attempt_id');
SELECT scrubbed, removed FROM idem_sweep();
UPDATE idem_open SET visit_at = clock_timestamp() WHERE action_id = :'refund';
SELECT scrubbed, removed FROM idem_sweep();
SELECT o.visit_at = charge.expires_at AS with_its_parent FROM idem_open AS o, idem_action AS charge
WHERE o.action_id = :'refund' AND charge.action_id = :'charge';
SELECT idem_compensate(:'charge', 'compensate refund again', '{}', 'compensate.fleeting');
SELECT decision FROM idem_compensate(:'charge', 'compensate refund', '{}', 'compensate.fleeting');
-- Once the parent is gone, nothing keeps it.
DELETE FROM idem_action WHERE action_id = :'charge';
UPDATE idem_open SET visit_at = clock_timestamp() WHERE action_id = :'refund';
SELECT scrubbed, removed FROM idem_sweep();
SELECT count(*) FROM idem_compensation WHERE parent_id = :'charge';

-- Refused before anything changes.
SELECT idem_compensate(NULL, 'k', '{}');
SELECT idem_compensate(gen_random_uuid(), 'k', '{}');
SELECT idem_compensate(:'partly', NULL, '{}');
SELECT idem_compensate(:'partly', 'compensate partly', '{}');
SELECT idem_compensate(:'partly', 'compensate booked', '{}');
SELECT idem_compensate(:'partly', 'compensate cancel', '{}');
SELECT idem_compensate(:'cancelled', 'k', '{}');
SELECT idem_compensate(:'partly', 'compensate undo partly', '{}', tenant => 'other');
SELECT decision FROM idem_compensate(:'partly', 'compensate undo partly', '{}', tenant => 'acme');
BEGIN READ ONLY;
SELECT idem_compensate(:'partly', 'compensate undo partly', '{}');
ROLLBACK;
