-- idem_attempt and idem_event: how attempts ended and what happened, numbered within the action, append-only.
\set VERBOSITY sqlstate
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
\set three 33333333-3333-4333-8333-333333333333
\set four 44444444-4444-4444-8444-444444444444
\set five 55555555-5555-4555-8555-555555555555
\set six 66666666-6666-4666-8666-666666666666
SELECT policy_version FROM idem_register_action_type('history', 'deduplicated_creation', settle_delay => '0 s', probe_interval => '0 s', probes_required => 1);
-- Released, refused, lapsed and disproved, unknown and found.
SELECT decision, attempt FROM idem_reserve('history', '{"secret": 1}', action_type => 'history', attempt_id => :'one');
SELECT idem_release(idem_action_id('history'), :'one');
SELECT decision, attempt FROM idem_reserve('history', '{"secret": 1}', action_type => 'history', attempt_id => :'two');
SELECT idem_fail(idem_action_id('history'), :'two', 'refused', '{"code": 1}', true, 0);
SELECT decision, attempt FROM idem_reserve('history', '{"secret": 1}', action_type => 'history', attempt_id => :'three', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision, attempt FROM idem_reserve('history', '{"secret": 1}', action_type => 'history', attempt_id => :'four', can_reconcile => true);
SELECT state FROM idem_resolve(idem_action_id('history'), :'four', 'not_applied', evidence => '{"found": 0}');
SELECT decision, attempt FROM idem_reserve('history', '{"secret": 1}', action_type => 'history', attempt_id => :'five');
SELECT idem_mark_unknown(idem_action_id('history'), :'five', 'timeout');
SELECT idem_add_evidence(idem_action_id('history'), :'five', 'applied', NULL, 're_1', 'req_1', 'a webhook came');
SELECT decision, attempt FROM idem_reserve('history', '{"secret": 1}', action_type => 'history', attempt_id => :'six', can_reconcile => true);
SELECT state FROM idem_resolve(idem_action_id('history'), :'six', 'applied', '{"n": 1}', 're_1');
SELECT n, attempt, reconciling, outcome FROM idem_attempts WHERE action_id = idem_action_id('history') ORDER BY n;
-- Fences as they were granted, and each token with its attempt.
SELECT bool_and(fence > before) AS fences_rise, count(DISTINCT attempt_id) AS tokens
FROM (SELECT fence, attempt_id, lag(fence) OVER (ORDER BY n) AS before FROM idem_attempt WHERE action_id = idem_action_id('history')) AS attempts;
SELECT bool_and(at >= before) AS in_time, min(n) AS first, max(n) = count(*) AS without_gaps, bool_and(role = current_user) AS role, bool_and(session_role = session_user) AS session_role
FROM (SELECT *, lag(at) OVER (ORDER BY n) AS before FROM idem_event WHERE action_id = idem_action_id('history')) AS events;
SELECT attempt, event, finding, resource_id, external_request_id, note, response, evidence FROM idem_event
WHERE action_id = idem_action_id('history') AND (finding IS NOT NULL OR note IS NOT NULL) ORDER BY n;

-- A first-try commit, a conflict, a replay and a pending answer leave nothing.
SELECT decision FROM idem_reserve('history quiet', '{}', attempt_id => :'one');
SELECT decision FROM idem_reserve('history quiet', '{}');
SELECT decision FROM idem_reserve('history quiet', '[]');
SELECT idem_commit(idem_action_id('history quiet'), :'one');
SELECT decision FROM idem_reserve('history quiet', '{}');
SELECT (SELECT count(*) FROM idem_event WHERE action_id = a.id) AS events, (SELECT count(*) FROM idem_attempt WHERE action_id = a.id) AS attempts
FROM idem_action_id('history quiet') AS a(id);
-- An attempt that was ended twice stands there once; one that is rolled back does not.
SELECT decision FROM idem_reserve('history once', '{}', attempt_id => :'one');
BEGIN;
SELECT idem_mark_unknown(idem_action_id('history once'), :'one');
ROLLBACK;
SELECT idem_mark_unknown(idem_action_id('history once'), :'one');
SELECT idem_mark_unknown(idem_action_id('history once'), :'one');
SELECT n, attempt, outcome FROM idem_attempts WHERE action_id = idem_action_id('history once');
-- A take-over is on record with whom it took over from.
SELECT policy_version FROM idem_register_action_type('history read', 'read_only');
SELECT decision FROM idem_reserve('history taken', '{}', action_type => 'history read', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT decision FROM idem_reserve('history taken', '{}', action_type => 'history read', attempt_id => :'two');
SELECT n, attempt, outcome, attempt_id = :'one' AS first FROM idem_attempt WHERE action_id = idem_action_id('history taken');
SELECT count(*) > 0 AS noted FROM idem_event WHERE action_id = idem_action_id('history taken');

-- Append-only, for the owner as well.
UPDATE idem_attempt SET outcome = 'committed' WHERE action_id = idem_action_id('history');
DELETE FROM idem_attempt WHERE action_id = idem_action_id('history');
TRUNCATE idem_attempt;
UPDATE idem_event SET event = '' WHERE action_id = idem_action_id('history');
DELETE FROM idem_event WHERE action_id = idem_action_id('history');
TRUNCATE idem_event;
UPDATE idem_event SET event = '' WHERE false;
SELECT count(*) FROM idem_attempt WHERE action_id = idem_action_id('history');
