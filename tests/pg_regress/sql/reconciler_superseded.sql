-- A reconciling attempt that lost the action never sent anything: it cannot commit, but it can say what it saw.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
SELECT decision FROM idem_reserve('reconciler_superseded', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('reconciler_superseded'), :'one');
SELECT decision FROM idem_reserve('reconciler_superseded', attempt_id => :'two', can_reconcile => true, lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('reconciler_superseded', attempt_id => :'three', can_reconcile => true);
SELECT idem_commit(idem_action_id('reconciler_superseded'), :'two');
SELECT idem_commit(idem_action_id('reconciler_superseded'), :'two', on_lost => 'record');
SELECT state FROM idem_resolve(idem_action_id('reconciler_superseded'), :'two', 'not_applied');
SELECT idem_add_evidence(idem_action_id('reconciler_superseded'), :'two', 'applied', resource_id => 're_1');
SELECT positive_evidence FROM idem_unresolved WHERE key = 'reconciler_superseded';
-- Nobody reconciles any more: still not its to commit, but the first attempt's.
SELECT state FROM idem_resolve(idem_action_id('reconciler_superseded'), :'three', 'inconclusive', next_probe_seconds => 0);
SELECT idem_commit(idem_action_id('reconciler_superseded'), :'two');
SELECT idem_commit(idem_action_id('reconciler_superseded'), :'three');
SELECT idem_commit(idem_action_id('reconciler_superseded'), :'one');
