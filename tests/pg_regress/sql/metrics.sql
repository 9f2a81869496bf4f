-- Numbers to watch: the names, what each counts, and how well. Others count at the same time, so differences are shown.
SELECT name, count(*) AS rows, min(precision) AS precision FROM idem_metrics GROUP BY name ORDER BY name;
SELECT DISTINCT value IS NULL AS unknown FROM idem_metrics WHERE precision = 'approximate'
    AND (value IS NULL) IS DISTINCT FROM NOT idem_preloaded();
SELECT up_to_seconds FROM idem_metrics WHERE name = 'time_to_resolution' ORDER BY up_to_seconds;
SELECT name FROM idem_register_action_type('metrics', 'deduplicated_creation', settle_delay => '0', probes_required => 1);
-- What other tests left is noticed before, not while this one counts: leases that end soon are let end.
DO $$ BEGIN
    PERFORM pg_sleep(extract(epoch FROM max(lease_expires_at) - clock_timestamp())) FROM idem_actions
        WHERE state = 'started' AND lease_expires_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '10 s';
END $$;
CALL idem_sweep_all();
CREATE TEMP TABLE before AS SELECT * FROM idem_metrics;
\set show 'SELECT m.name, m.up_to_seconds, m.value - b.value AS more FROM idem_metrics AS m JOIN before AS b ON m.name = b.name AND m.up_to_seconds IS NOT DISTINCT FROM b.up_to_seconds WHERE m.precision = ''exact'' AND m.name <> ''time_to_resolution.sum'' AND m.value <> b.value ORDER BY 1, 2'

-- An outcome becomes unknown: said so, dead, dead and noticed by a reconciler.
SELECT action_id, attempt_id FROM idem_reserve('metrics said', action_type => 'metrics') \gset
SELECT idem_mark_unknown(:'action_id', :'attempt_id');
SELECT decision FROM idem_reserve('metrics dead', action_type => 'metrics', lease_seconds => 0.001);
SELECT pg_sleep(0.01);
SELECT count(*) FROM idem_reconcile_next(action_type => 'metrics');
:show;
-- Resolved: by a late answer, by a reconciler, by a person. What is rolled back is not counted.
SELECT idem_add_evidence(:'action_id', :'attempt_id', 'inconclusive');
BEGIN;
SELECT idem_decide(:'action_id', 'applied', 'seen');
ROLLBACK;
SELECT idem_decide(:'action_id', 'applied', 'seen');
SELECT action_id AS dead, reconcile_id AS probe FROM idem_action WHERE key = 'metrics dead' \gset
SELECT state FROM idem_resolve(:'dead', :'probe', 'not_applied');
:show;
SELECT m.value - b.value BETWEEN 0 AND 10 AS seconds FROM idem_metrics AS m JOIN before AS b USING (name) WHERE name = 'time_to_resolution.sum';
-- A compensation.
SELECT decision FROM idem_compensate(:'action_id', 'metrics undo', '{}', 'metrics');
SELECT decision FROM idem_compensate(:'action_id', 'metrics undo', '{}', 'metrics');
:show;
-- Added up, the sums stay.
SELECT FROM generate_series(1, 200) AS n, LATERAL idem_reserve('metrics many ' || n, action_type => 'metrics', lease_seconds => 0.001);
SELECT pg_sleep(0.01);
SELECT count(*) FROM idem_sweep(10000);
SELECT count(*) FROM idem_reconcile_next(1000, action_type => 'metrics');
CREATE TEMP TABLE sums AS SELECT name, up_to, sum(value) FROM idem_counted GROUP BY 1, 2;
SELECT idem_add_up_counts() >= 100 AS added_up;
SELECT max(n) FROM (SELECT count(*) AS n FROM idem_counted WHERE name = 'actions.unknown') AS c;
SELECT count(*) FROM (SELECT name, up_to, sum(value) FROM idem_counted WHERE name IN ('actions.unknown', 'time_to_resolution', 'compensations.created') GROUP BY 1, 2
    EXCEPT SELECT * FROM sums) AS differing;

-- Conflicts: the action, the type, the time; no payload.
SELECT attname FROM pg_attribute WHERE attrelid = 'idem_conflicts'::regclass AND attnum > 0 ORDER BY attnum;
