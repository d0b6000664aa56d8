-- One row a table that has rows in [start, end): how many, the first instant and the last one.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
),
instants AS (
    SELECT 'tenant_minute' AS name, bucket_start AS instant FROM tenant_minute
    UNION ALL SELECT 'interference_minute', bucket_start FROM interference_minute
    UNION ALL SELECT 'adapter_minute', bucket_start FROM adapter_minute
    UNION ALL SELECT 'engine_minute', bucket_start FROM engine_minute
    UNION ALL SELECT 'request', arrived FROM request
    UNION ALL SELECT 'event', "at" FROM event
    UNION ALL SELECT 'policy', "at" FROM policy
    UNION ALL SELECT 'step_sample', "at" FROM step_sample
)
SELECT name, count(*) AS rows, min(instant) AS first_instant, max(instant) AS last_instant
FROM instants, bounds
WHERE instant >= low AND instant < high
GROUP BY name
ORDER BY name
