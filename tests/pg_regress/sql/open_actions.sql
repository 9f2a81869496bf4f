-- idem_open: one row for each action that left the hot path, by what it waits for.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
\set four 44444444-4444-4444-8444-444444444444
\set place '(SELECT queue || CASE WHEN due_at > clock_timestamp() + interval ''10 s'' THEN '', later'' ELSE '''' END FROM idem_open WHERE action_id = idem_action_id(''open_actions'', ''acme'')) AS place'
SELECT policy_version FROM idem_register_action_type('open_actions', 'deduplicated_creation', settle_delay => '0 s', probe_interval => '0 s', probes_required => 1);
-- A first attempt needs no place.
SELECT decision, :place FROM idem_reserve('open_actions', '{}', 'acme', 'open_actions', attempt_id => :'one');
-- retryable: execution
SELECT idem_fail(idem_action_id('open_actions', 'acme'), :'one', 'refused', NULL, true, 0);
SELECT :place;
SELECT tenant, action_type, visit_at FROM idem_open WHERE action_id = idem_action_id('open_actions', 'acme');
-- A later attempt: the end of its lease
SELECT decision FROM idem_reserve('open_actions', '{}', 'acme', 'open_actions', attempt_id => :'two');
SELECT :place;
SELECT o.due_at = a.lease_expires_at AND o.visit_at = a.lease_expires_at AS lease_end FROM idem_open AS o JOIN idem_action AS a USING (action_id) WHERE a.key = 'open_actions';
-- A renewed lease moves it.
SELECT idem_renew(idem_action_id('open_actions', 'acme'), :'two', 600) > clock_timestamp() AS renewed;
SELECT o.due_at = a.lease_expires_at AND o.visit_at = a.lease_expires_at AS lease_end FROM idem_open AS o JOIN idem_action AS a USING (action_id) WHERE a.key = 'open_actions';
-- unknown: reconciliation, until its deadline
SELECT idem_mark_unknown(idem_action_id('open_actions', 'acme'), :'two');
SELECT :place;
SELECT o.visit_at = a.deadline_at AS deadline FROM idem_open AS o JOIN idem_action AS a USING (action_id) WHERE a.key = 'open_actions';
SELECT decision FROM idem_reserve('open_actions', '{}', 'acme', 'open_actions', attempt_id => :'three', can_reconcile => true);
SELECT :place;
SELECT state FROM idem_resolve(idem_action_id('open_actions', 'acme'), :'three', 'inconclusive', next_probe_seconds => 0);
SELECT :place;
SELECT decision FROM idem_reserve('open_actions', '{}', 'acme', 'open_actions', attempt_id => :'four', can_reconcile => true);
-- escalated: review, and no visit
SELECT state FROM idem_resolve(idem_action_id('open_actions', 'acme'), :'four', 'ambiguous');
SELECT :place;
-- committed: none
SELECT idem_commit(idem_action_id('open_actions', 'acme'), :'two');
SELECT :place;
-- Rolled back with what made it.
SELECT decision FROM idem_reserve('open_actions rollback', '{}', attempt_id => :'one');
BEGIN;
SELECT idem_mark_unknown(idem_action_id('open_actions rollback'), :'one');
ROLLBACK;
SELECT count(*) FROM idem_open WHERE action_id = idem_action_id('open_actions rollback');
BEGIN;
SELECT idem_mark_unknown(idem_action_id('open_actions rollback'), :'one');
SAVEPOINT s;
SELECT idem_commit(idem_action_id('open_actions rollback'), :'one');
ROLLBACK TO SAVEPOINT s;
COMMIT;
SELECT queue FROM idem_open WHERE action_id = idem_action_id('open_actions rollback');
