-- A response over pg_idem.max_response_size is left out, and the commit stands.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
SELECT decision FROM idem_reserve('commit_response large', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('commit_response large'), :'one', jsonb_build_object('a', repeat('x', 1100000)), 're_1', 'req_1');
SELECT granted, decision, response, response_state, resource_id, external_request_id FROM idem_reserve('commit_response large', '{}');
SELECT state, response, response_state FROM idem_status('commit_response large');
-- Just below it is kept.
SELECT decision FROM idem_reserve('commit_response fits', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('commit_response fits'), :'one', jsonb_build_object('a', repeat('x', 1000000)));
SELECT response_state, length(response ->> 'a') FROM idem_reserve('commit_response fits', '{}');
-- The setting decides.
SELECT decision FROM idem_reserve('commit_response small', '{}', attempt_id => :'one');
BEGIN;
SET LOCAL pg_idem.max_response_size = '1kB';
SELECT idem_commit(idem_action_id('commit_response small'), :'one', jsonb_build_object('a', repeat('x', 1100)));
COMMIT;
SELECT response, response_state FROM idem_reserve('commit_response small', '{}');
SELECT decision FROM idem_reserve('commit_response nothing', '{}', attempt_id => :'one');
BEGIN;
SET LOCAL pg_idem.max_response_size = 0;
SELECT idem_commit(idem_action_id('commit_response nothing'), :'one', '{}');
COMMIT;
SELECT response, response_state FROM idem_reserve('commit_response nothing', '{}');
-- A document that is stored can be replayed, whatever PostgreSQL accepts.
SELECT decision FROM idem_reserve('commit_response hard', '{}', attempt_id => :'one');
SELECT idem_commit(idem_action_id('commit_response hard'), :'one', jsonb_build_object('n', '1e400'::numeric, 'm', '-1e-400'::numeric,
    'deep', (repeat('[', 1000) || repeat(']', 1000))::jsonb, U&'\FB33', U&'\+01F602', '', E'\u0001'));
SELECT response = jsonb_build_object('n', '1e400'::numeric, 'm', '-1e-400'::numeric,
    'deep', (repeat('[', 1000) || repeat(']', 1000))::jsonb, U&'\FB33', U&'\+01F602', '', E'\u0001') AS same
FROM idem_reserve('commit_response hard', '{}');
-- Found by a reconciler: the same rule.
SELECT decision FROM idem_reserve('commit_response found', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('commit_response found'), :'one');
SELECT decision FROM idem_reserve('commit_response found', '{}', attempt_id => :'two', can_reconcile => true);
BEGIN;
SET LOCAL pg_idem.max_response_size = 0;
SELECT state FROM idem_resolve(idem_action_id('commit_response found'), :'two', 'applied', '{}', 're_1');
COMMIT;
SELECT decision, response, response_state, resource_id FROM idem_reserve('commit_response found', '{}');
