-- idem_sweep does at most max_rows at a time, and gets through all the same.
\set one 11111111-1111-4111-8111-111111111111
CALL idem_sweep_all();
SELECT count(*) FILTER (WHERE granted) FROM generate_series(1, 20) AS n,
    LATERAL idem_reserve('sweep_bounds ' || n, '{}', attempt_id => :'one', lease_seconds => 0.01);
SELECT pg_sleep(0.02);
SELECT visited = 1 AS one FROM idem_sweep(1);
SELECT visited BETWEEN 1 AND 3 AS at_most_three FROM idem_sweep(3);
SELECT count(*) FILTER (WHERE state = 'unknown') <= 4 AS bounded FROM idem_actions WHERE key LIKE 'sweep\_bounds %';
DO $$
DECLARE
    most bigint := 0;
    swept idem_swept;
BEGIN
    FOR n IN 1..500 LOOP
        EXIT WHEN NOT EXISTS (SELECT FROM idem_actions WHERE key LIKE 'sweep\_bounds %' AND state = 'started');
        swept := idem_sweep(2);
        most := greatest(most, swept.visited);
    END LOOP;
    RAISE INFO 'at most %', most;
END
$$;
SELECT state, count(*) FROM idem_actions WHERE key LIKE 'sweep\_bounds %' GROUP BY 1;
-- Retention as well.
SELECT policy_version FROM idem_register_action_type('sweep_bounds', 'reversible', ttl => '0 s', tombstone_ttl => '0 s');
SELECT count(*) FILTER (WHERE granted) FROM generate_series(1, 10) AS n,
    LATERAL idem_reserve('sweep_bounds gone ' || n, '{}', action_type => 'sweep_bounds', attempt_id => :'one', lease_seconds => 0.01);
SELECT count(*) FILTER (WHERE idem_commit(idem_action_id('sweep_bounds gone ' || n), :'one') = 'committed') FROM generate_series(1, 10) AS n;
SELECT pg_sleep(0.02);
SELECT visited BETWEEN 1 AND 2 AS at_most_two FROM idem_sweep(2);
SELECT count(*) >= 8 AS bounded FROM idem_action WHERE key LIKE 'sweep\_bounds gone %' AND state = 'c';
DO $$
BEGIN
    FOR n IN 1..500 LOOP
        EXIT WHEN NOT EXISTS (SELECT FROM idem_actions WHERE key LIKE 'sweep\_bounds gone %');
        PERFORM idem_sweep(2);
    END LOOP;
END
$$;
SELECT count(*) FROM idem_action WHERE key LIKE 'sweep\_bounds gone %';
-- Arguments
\set VERBOSITY sqlstate
SELECT visited FROM idem_sweep(0);
SELECT visited FROM idem_sweep(-1);
SELECT visited >= 0 AS visited, unknown >= 0 AS unknown, scrubbed >= 0 AS scrubbed, removed >= 0 AS removed FROM idem_sweep(NULL);
-- A procedure that commits its batches is not for a transaction block.
BEGIN;
CALL idem_sweep_all();
ROLLBACK;
