-- When a retryable action is due: what the provider said, else exponential, capped, with full jitter.
\set one 11111111-1111-4111-8111-111111111111
SELECT policy_version FROM idem_register_action_type('backoff', 'reversible', max_attempts => 100,
    backoff_base => '10 s', backoff_cap => '40 s');
-- 40 actions failed once, twice, three times, ten times: the wait lies between nothing and the step.
DO $$
DECLARE
    granted idem_reservation;
    step int;
BEGIN
    FOR n IN 1..40 LOOP
        FOREACH step IN ARRAY '{1,2,3,10}'::int[] LOOP
            FOR failure IN 1..step LOOP
                granted := idem_reserve(format('backoff %s %s', step, n), '{}', action_type => 'backoff');
                PERFORM idem_fail(granted.action_id, granted.attempt_id, 'refused', retryable => true,
                    retry_after_seconds => CASE WHEN failure < step THEN 0 END);
            END LOOP;
        END LOOP;
    END LOOP;
END
$$;
SELECT failures, bool_and(wait > interval '0') AS later, bool_and(wait <= step) AS within_step, max(wait) > min(step) / 2 AS upper_half_reached,
    count(DISTINCT wait) > 30 AS jitter
FROM (SELECT attempt AS failures, due_at - (SELECT max(ended_at) FROM idem_attempts AS t WHERE t.action_id = a.action_id) AS wait,
        least(10 * 2 ^ (attempt - 1), 40) * interval '1 s' AS step
    FROM idem_actions AS a WHERE key LIKE 'backoff %') AS waits
GROUP BY failures ORDER BY failures;
-- What the caller knows comes first, above the cap as well.
SELECT decision FROM idem_reserve('backoff told', '{}', action_type => 'backoff', attempt_id => :'one');
SELECT idem_fail(idem_action_id('backoff told'), :'one', 'refused', NULL, true, 3600);
SELECT due_at > clock_timestamp() + interval '3590 s' AND due_at <= clock_timestamp() + interval '3600 s' AS an_hour
FROM idem_status('backoff told');
SELECT decision, retry_after_seconds > 3590 AND retry_after_seconds <= 3600 AS an_hour
FROM idem_reserve('backoff told', '{}', action_type => 'backoff');
