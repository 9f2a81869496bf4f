-- idem_add_evidence: what an attempt saw is kept, in every state. Outside unknown a positive one is a discrepancy.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
\set four 44444444-4444-4444-8444-444444444444
SELECT name, decision FROM unnest('{started,unknown,retryable,committed,failed}'::text[]) AS name,
    LATERAL idem_reserve('add_evidence ' || name, '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('add_evidence unknown'), :'one');
SELECT idem_release(idem_action_id('add_evidence retryable'), :'one');
SELECT idem_commit(idem_action_id('add_evidence committed'), :'one', '{"n": 1}', 're_1', 'req_1');
SELECT idem_fail(idem_action_id('add_evidence failed'), :'one', 'refused', '{"code": 1}');
\set states 'unnest(''{started,unknown,retryable,committed,failed}''::text[]) AS name'
-- What says nothing of an effect is a note.
SELECT name, idem_add_evidence(idem_action_id('add_evidence ' || name), :'one', 'not_applied') AS not_applied,
    idem_add_evidence(idem_action_id('add_evidence ' || name), :'one', 'ambiguous', note => 'two of them') AS ambiguous,
    idem_add_evidence(idem_action_id('add_evidence ' || name), :'one', 'inconclusive') AS inconclusive FROM :states;
SELECT name, state, discrepancy FROM :states, LATERAL idem_status('add_evidence ' || name);
-- The same resource confirms a committed action; without one there is nothing to compare.
SELECT idem_add_evidence(idem_action_id('add_evidence committed'), :'one', 'applied', NULL, 're_1');
SELECT idem_add_evidence(idem_action_id('add_evidence committed'), :'one', 'applied');
SELECT discrepancy FROM idem_status('add_evidence committed');
-- Positive: expected in unknown, a contradiction elsewhere.
SELECT name, idem_add_evidence(idem_action_id('add_evidence ' || name), :'one', 'applied', '{"n": 2}', 're_2', 'req_2', 'seen') FROM :states;
SELECT name, state, discrepancy, response, resource_id, external_request_id, error FROM :states, LATERAL idem_status('add_evidence ' || name);
-- No grant before a person has decided; what is ended stays answered.
SELECT name, granted, decision FROM :states, LATERAL idem_reserve('add_evidence ' || name, '{}');
-- What was seen is on record, in order.
SELECT event, finding, response, resource_id, external_request_id, note FROM idem_event
WHERE action_id = idem_action_id('add_evidence failed') AND finding IS NOT NULL ORDER BY n;
-- partially_applied is positive, too.
SELECT decision FROM idem_reserve('add_evidence partly', '{}', attempt_id => :'one');
SELECT idem_release(idem_action_id('add_evidence partly'), :'one');
SELECT idem_add_evidence(idem_action_id('add_evidence partly'), :'one', 'partially_applied');
SELECT granted, decision FROM idem_reserve('add_evidence partly', '{}');

-- A started action with a discrepancy: its owner can end it, nobody else is granted it, whatever the type.
SELECT policy_version FROM idem_register_action_type('add_evidence', 'idempotent_mutation');
SELECT decision FROM idem_reserve('add_evidence lapsed', '{}', action_type => 'add_evidence', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('add_evidence lapsed', '{}', action_type => 'add_evidence', attempt_id => :'two', lease_seconds => 0.05);
SELECT idem_add_evidence(idem_action_id('add_evidence lapsed'), :'one', 'applied', NULL, 're_1');
SELECT pg_sleep(0.06);
SELECT granted FROM idem_reserve('add_evidence lapsed', '{}', action_type => 'add_evidence');
SELECT idem_commit(idem_action_id('add_evidence started'), :'one', '{"n": 1}', 're_1');
SELECT decision, response, resource_id FROM idem_reserve('add_evidence started', '{}');
-- A live attempt of such an action is not given back either.
SELECT decision FROM idem_reserve('add_evidence resume', '{}', action_type => 'add_evidence', attempt_id => :'one');
SELECT idem_add_evidence(idem_action_id('add_evidence resume'), :'one', 'applied');
SELECT granted, decision FROM idem_reserve('add_evidence resume', '{}', action_type => 'add_evidence', attempt_id => :'one');

-- Any attempt of the action may report, the superseded and the reconciling one included; nobody else.
SELECT idem_add_evidence(idem_action_id('add_evidence lapsed'), :'two', 'inconclusive');
SELECT decision FROM idem_reserve('add_evidence unknown', '{}', attempt_id => :'three', can_reconcile => true);
SELECT idem_add_evidence(idem_action_id('add_evidence unknown'), :'three', 'applied', NULL, 're_2');
SELECT idem_add_evidence(idem_action_id('add_evidence unknown'), :'four', 'applied');
SELECT idem_add_evidence(idem_action_id('add_evidence nothing'), :'one', 'applied');
SELECT idem_add_evidence(NULL, :'one', 'applied');
SELECT idem_add_evidence(idem_action_id('add_evidence unknown'), NULL, 'applied');
SELECT idem_add_evidence(idem_action_id('add_evidence unknown'), :'one', NULL);
SELECT idem_add_evidence(idem_action_id('add_evidence unknown'), :'one', 'maybe');
SELECT idem_add_evidence(idem_action_id('add_evidence unknown'), :'one', 'applied', NULL, repeat('r', 256));
SELECT idem_add_evidence(idem_action_id('add_evidence unknown'), :'one', 'applied', NULL, NULL, repeat('r', 256));
SELECT idem_add_evidence(idem_action_id('add_evidence unknown'), :'one', 'applied', NULL, NULL, NULL, repeat('r', 256));
SELECT count(*) FROM idem_event WHERE action_id = idem_action_id('add_evidence unknown') AND finding = 'applied';
