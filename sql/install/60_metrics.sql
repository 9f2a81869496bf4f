-- Numbers to watch.

CREATE TABLE @extschema@.idem_counted (
    name    text   COLLATE "C" NOT NULL,
    up_to   bigint,
    value   bigint NOT NULL,
    counter bigint
) USING heap;
-- Without a key, for publications of all tables: rows could not be changed in a database that has one.
ALTER TABLE @extschema@.idem_counted REPLICA IDENTITY FULL;
COMMENT ON TABLE @extschema@.idem_counted IS 'Counts: the sum over a name counts. Whatever is counted adds a row, and the worker adds rows up.';
COMMENT ON COLUMN @extschema@.idem_counted.up_to IS 'Of a distribution: the upper bound that this counts for, in microseconds.';
COMMENT ON COLUMN @extschema@.idem_counted.counter IS 'Of what was counted in shared memory: where. Of a counter that still counts, this much is written down.';
REVOKE ALL ON TABLE @extschema@.idem_counted FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_counted', '');

CREATE TYPE @extschema@.idem_live_count AS (name text, value bigint, counter bigint);
COMMENT ON TYPE @extschema@.idem_live_count IS 'One count in shared memory, from the counter''s beginning on.';

CREATE FUNCTION @extschema@.idem_live_counts() RETURNS SETOF @extschema@.idem_live_count
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 4 AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_live_counts IS 'What was counted in shared memory, what is written down already included; no rows where the library is not preloaded, nor for a role that is bound to tenants. For the view idem_metrics. Errors: 0A000.';

CREATE TYPE @extschema@.idem_recent_conflict AS (action_id uuid, action_type text, at timestamptz);
COMMENT ON TYPE @extschema@.idem_recent_conflict IS 'One call that brought another request under a key in use.';

CREATE FUNCTION @extschema@.idem_recent_conflicts() RETURNS SETOF @extschema@.idem_recent_conflict
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100 AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_recent_conflicts IS 'The last conflicts in this database that the calling role sees, from shared memory; no rows where the library is not preloaded. For the view idem_conflicts. Errors: 0A000.';

CREATE VIEW @extschema@.idem_unwritten_counts AS
SELECT l.name, l.counter, greatest(0, l.value OPERATOR(pg_catalog.-) coalesce(
    (SELECT pg_catalog.sum(c.value) FROM @extschema@.idem_counted AS c
        WHERE c.name OPERATOR(pg_catalog.=) l.name AND c.counter OPERATOR(pg_catalog.=) l.counter), 0)) AS more
FROM @extschema@.idem_live_counts() AS l;
COMMENT ON VIEW @extschema@.idem_unwritten_counts IS 'What was counted in shared memory and is not written down in idem_counted. For the view idem_metrics.';
REVOKE ALL ON TABLE @extschema@.idem_unwritten_counts FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_add_up_counts() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rows bigint;
BEGIN
    -- One at a time, as sweeps are, and with what the one before wrote in sight; the next visit finds all that is left.
    PERFORM FROM @extschema@.idem_cursor AS c WHERE c.purpose = 'lease' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RETURN 0;
    END IF;
    -- Nothing is taken from shared memory: what is written down of a counter is known by it, so a transaction that
    -- is rolled back loses nothing, and whoever reads meanwhile sees the same sum.
    INSERT INTO @extschema@.idem_counted (name, value, counter)
        SELECT l.name, l.more, l.counter FROM @extschema@.idem_unwritten_counts AS l WHERE l.more > 0;
    IF (SELECT count(*) FROM (SELECT FROM @extschema@.idem_counted LIMIT 100) AS few) < 100 THEN
        RETURN 0;
    END IF;
    -- Rows that others add meanwhile stay.
    WITH gone AS (
        DELETE FROM @extschema@.idem_counted AS c WHERE c.ctid = ANY (ARRAY(
            SELECT d.ctid FROM @extschema@.idem_counted AS d LIMIT 10000))
        RETURNING c.name, c.up_to, c.value,
            CASE WHEN c.counter IN (SELECT l.counter FROM @extschema@.idem_live_counts() AS l) THEN c.counter END AS counter
    ), added AS (
        INSERT INTO @extschema@.idem_counted
            SELECT g.name, g.up_to, sum(g.value), g.counter FROM gone AS g GROUP BY g.name, g.up_to, g.counter
    )
    SELECT count(*) INTO rows FROM gone;
    RETURN rows;
END
$$;
COMMENT ON FUNCTION @extschema@.idem_add_up_counts IS 'Writes down what was counted in shared memory, and adds up the rows of idem_counted when there are many. For the worker and idem_sweep_all.';

CREATE VIEW @extschema@.idem_metrics WITH (security_barrier) AS
SELECT m.name, NULL::double precision AS up_to_seconds,
    CASE WHEN m.live AND live.preloaded IS NULL THEN NULL
        ELSE coalesce(kept.value, 0) / m.per + coalesce(live.value, 0) END AS value,
    CASE WHEN m.live THEN 'approximate' ELSE 'exact' END AS precision
FROM (VALUES ('actions.started', true, 1.0::double precision), ('attempts.sent', true, 1), ('actions.unknown', false, 1),
    ('reconciliations.resolved', false, 1), ('duplicate_requests_suppressed', true, 1),
    ('conflicting_key_reuse', true, 1), ('compensations.created', false, 1), ('time_to_resolution.sum', false, 1000000)
    ) AS m (name, live, per)
LEFT JOIN (
    SELECT c.name, pg_catalog.sum(c.value) AS value FROM @extschema@.idem_counted AS c WHERE c.up_to IS NULL GROUP BY c.name
) AS kept ON kept.name = m.name
LEFT JOIN (
    SELECT l.name, l.more AS value, true AS preloaded FROM @extschema@.idem_unwritten_counts AS l
) AS live ON live.name = m.name
WHERE (SELECT @extschema@.idem_sees_tenant(NULL))
UNION ALL
-- As a histogram is exported: how many took up to so long.
SELECT 'time_to_resolution', b.up_to, coalesce(
    (SELECT pg_catalog.sum(c.value) FROM @extschema@.idem_counted AS c
        WHERE c.name = 'time_to_resolution' AND c.up_to <= b.up_to * 1000000), 0), 'exact'
FROM (VALUES (1.0::double precision), (10), (60), (300), (900), (3600), (21600), (86400), ('Infinity')) AS b (up_to)
WHERE (SELECT @extschema@.idem_sees_tenant(NULL));
COMMENT ON VIEW @extschema@.idem_metrics IS 'Numbers to watch, cumulative. Exact ones are counted in the transaction that they count; approximate ones in shared memory, what is rolled back included, and NULL where the library is not preloaded.';

CREATE VIEW @extschema@.idem_conflicts WITH (security_barrier) AS
SELECT r.action_id, r.action_type, r.at
FROM @extschema@.idem_recent_conflicts() AS r
LEFT JOIN @extschema@.idem_action AS a ON a.action_id = r.action_id
WHERE @extschema@.idem_sees_tenant(a.tenant);
COMMENT ON VIEW @extschema@.idem_conflicts IS 'The last calls that brought another request under a key in use: the action, the type they named, when. Empty where the library is not preloaded.';
