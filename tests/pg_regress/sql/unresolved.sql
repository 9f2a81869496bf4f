-- What is not resolved: who is at it, since when, until when, what was found, how to look it up, what to do next.
SELECT name FROM idem_register_action_type('unresolved', 'deduplicated_creation', settle_delay => '0', probe_interval => '1 h');
UPDATE idem_action_type SET lookup_hint = 'GET /refunds?key=' WHERE name = 'unresolved';
SELECT name FROM idem_register_action_type('unresolved.late', 'deduplicated_creation', resolve_deadline => '0');
\set show 'SELECT key, state, owner, age < interval ''1 min'' AS young, deadline_at > now() AS in_time, last_evidence, last_resource_id, needs_review, discrepancy, lookup_hint, next_step FROM idem_unresolved WHERE action_type LIKE ''unresolved%'' ORDER BY key'

-- Dead, and nobody has come by; past its deadline, judged when it is read.
SELECT decision FROM idem_reserve('unresolved dead', action_type => 'unresolved', lease_seconds => 0.001);
SELECT decision FROM idem_reserve('unresolved late', action_type => 'unresolved.late', lease_seconds => 0.001);
SELECT decision FROM idem_reserve('unresolved alive', action_type => 'unresolved');
SELECT action_id, attempt_id AS one FROM idem_reserve('unresolved', action_type => 'unresolved') \gset
SELECT pg_sleep(0.01);
:show;
SELECT idem_mark_unknown(:'action_id', :'one');
:show;
-- Being looked at, looked at, contradicted.
SELECT attempt_id AS probe FROM idem_reserve('unresolved', action_type => 'unresolved', can_reconcile => true, worker => 'prober 1') \gset
SELECT owner, next_step FROM idem_unresolved WHERE key = 'unresolved';
SELECT state, next_probe_at > now() AS later FROM idem_resolve(:'action_id', :'probe', 'not_applied', evidence => '{"searched": "by key"}');
SELECT owner, probes, last_evidence, next_step FROM idem_unresolved WHERE key = 'unresolved';
SELECT idem_add_evidence(:'action_id', :'one', 'applied', resource_id => 're_1');
SELECT last_evidence, last_resource_id, positive_evidence, next_step FROM idem_unresolved WHERE key = 'unresolved';
SELECT idem_escalate(:'action_id', 'the two say different things');
SELECT needs_review, next_step FROM idem_unresolved WHERE key = 'unresolved';
SELECT idem_decide(:'action_id', 'applied', 're_1 is it', resource_id => 're_1');
-- A discrepancy in every state that has nobody running.
SELECT idem_add_evidence(:'action_id', :'one', 'applied', resource_id => 're_2');
SELECT state, resource_id, last_resource_id, discrepancy, next_step FROM idem_unresolved WHERE key = 'unresolved';
SELECT queue, visit_at FROM idem_open WHERE action_id = :'action_id';
SELECT idem_decide(:'action_id', 'applied', 're_2 is another order''s', resource_id => 're_1');
SELECT count(*) FROM idem_unresolved WHERE key = 'unresolved';
