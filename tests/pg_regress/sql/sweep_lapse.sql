-- idem_sweep: dead attempts become unknown; whoever is alive or ended is left alone.
\set one 11111111-1111-4111-8111-111111111111
\set two 22222222-2222-4222-8222-222222222222
CALL idem_sweep_all();
SELECT policy_version FROM idem_register_action_type('sweep_lapse', 'idempotent_mutation');
SELECT name, decision FROM unnest('{dead,dead too,committed}'::text[]) AS name,
    LATERAL idem_reserve('sweep_lapse ' || name, '{}', attempt_id => :'one', lease_seconds => 0.01);
SELECT decision FROM idem_reserve('sweep_lapse repeatable', '{}', action_type => 'sweep_lapse', attempt_id => :'one', lease_seconds => 0.01);
SELECT decision FROM idem_reserve('sweep_lapse second', '{}', action_type => 'sweep_lapse', attempt_id => :'one', lease_seconds => 0.01);
SELECT decision FROM idem_reserve('sweep_lapse alive', '{}', attempt_id => :'one', lease_seconds => 600);
SELECT decision FROM idem_reserve('sweep_lapse renewed', '{}', attempt_id => :'one', lease_seconds => 0.01);
SELECT idem_renew(idem_action_id('sweep_lapse renewed'), :'one', 600) > clock_timestamp() AS renewed;
SELECT idem_commit(idem_action_id('sweep_lapse committed'), :'one', '{"n": 1}');
SELECT pg_sleep(0.02);
SELECT decision, attempt FROM idem_reserve('sweep_lapse second', '{}', action_type => 'sweep_lapse', attempt_id => :'two', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT visited >= 6 AS visited, unknown >= 3 AS unknown FROM idem_sweep();
SELECT key, state, attempt FROM idem_actions WHERE key LIKE 'sweep\_lapse %' AND key NOT LIKE '% repeatable' ORDER BY key;
SELECT key, (SELECT string_agg(attempt || ' ' || outcome, ', ' ORDER BY n) FROM idem_attempts AS t WHERE t.action_id = a.action_id) AS attempts,
    (SELECT queue FROM idem_open AS o WHERE o.action_id = a.action_id) AS queue FROM idem_actions AS a
WHERE key IN ('sweep_lapse dead', 'sweep_lapse second', 'sweep_lapse renewed') ORDER BY key;
-- As a caller would have found them
SELECT granted, decision, attempt FROM idem_reserve('sweep_lapse dead', '{}');
SELECT granted, decision, attempt FROM idem_reserve('sweep_lapse repeatable', '{}', action_type => 'sweep_lapse');
-- The deadline counts from the end of the lease, not from the visit.
SELECT deadline_at <= created_at + interval '24 h 0.02 s' AS from_lease_end FROM idem_status('sweep_lapse dead');
-- Again: nothing of it is done twice.
SELECT md5(string_agg(ctid::text, ' ' ORDER BY key)) AS places FROM idem_action WHERE key LIKE 'sweep\_lapse %' \gset before_
SELECT visited IS NOT NULL AS visited FROM idem_sweep();
SELECT md5(string_agg(ctid::text, ' ' ORDER BY key)) = :'before_places' AS unchanged FROM idem_action WHERE key LIKE 'sweep\_lapse %';
SELECT idem_commit(idem_action_id('sweep_lapse dead too'), :'one', '{"n": 2}') AS late;

-- A renewed lease is found when it ends, although its visit came before.
SELECT decision FROM idem_reserve('sweep_lapse renewed once', '{}', attempt_id => :'one', lease_seconds => 0.01);
SELECT decision FROM idem_reserve('sweep_lapse renewed twice', '{}', attempt_id => :'one', lease_seconds => 0.01);
SELECT idem_renew(idem_action_id('sweep_lapse renewed once'), :'one', 0.5) > clock_timestamp() AS renewed;
SELECT idem_renew(idem_action_id('sweep_lapse renewed twice'), :'one', 0.5) > clock_timestamp() AS renewed;
SELECT pg_sleep(0.02);
CALL idem_sweep_all();
SELECT idem_renew(idem_action_id('sweep_lapse renewed twice'), :'one', 600) > clock_timestamp() AS renewed;
SELECT pg_sleep(0.5);
SELECT unknown >= 1 AS unknown FROM idem_sweep();
SELECT key, state FROM idem_actions WHERE key IN ('sweep_lapse renewed once', 'sweep_lapse renewed twice') ORDER BY key;

-- Past its deadline an unknown action is put before a person; its reconciler's death alone changes nothing.
SELECT policy_version FROM idem_register_action_type('sweep_lapse late', 'reversible', resolve_deadline => '0 s');
SELECT decision FROM idem_reserve('sweep_lapse late', '{}', action_type => 'sweep_lapse late', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('sweep_lapse late'), :'one');
SELECT decision FROM idem_reserve('sweep_lapse reconciler', '{}', attempt_id => :'one');
SELECT idem_mark_unknown(idem_action_id('sweep_lapse reconciler'), :'one');
SELECT decision FROM idem_reserve('sweep_lapse reconciler', '{}', attempt_id => :'two', can_reconcile => true, lease_seconds => 0.01);
SELECT pg_sleep(0.02);
CALL idem_sweep_all();
SELECT key, state, escalated, queue FROM idem_actions JOIN idem_open USING (action_id) WHERE key IN ('sweep_lapse late', 'sweep_lapse reconciler') ORDER BY key;
-- Non-terminal actions never expire, however short their ttl.
SELECT policy_version FROM idem_register_action_type('sweep_lapse forever', 'reversible', ttl => '0 s', tombstone_ttl => '0 s');
SELECT name, decision FROM unnest('{started,unknown,retryable}'::text[]) AS name,
    LATERAL idem_reserve('sweep_lapse forever ' || name, '{}', action_type => 'sweep_lapse forever', attempt_id => :'one', lease_seconds => 0.01);
SELECT idem_renew(idem_action_id('sweep_lapse forever started'), :'one', 600) > clock_timestamp() AS renewed;
SELECT idem_release(idem_action_id('sweep_lapse forever retryable'), :'one');
SELECT pg_sleep(0.02);
CALL idem_sweep_all();
CALL idem_sweep_all();
SELECT key, state FROM idem_actions WHERE key LIKE 'sweep\_lapse forever %' ORDER BY key;
