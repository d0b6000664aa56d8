-- Engines and pools heard of in [start, end), the end of the newest interval, and when one stopped.
WITH heard AS (
    SELECT engine, pool,
           max(epoch(bucket_start) + least(bucket_s, coalesce(observed_seconds, bucket_s)))
               AS last_s
    FROM engine_minute
    WHERE bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
    GROUP BY engine, pool
),
stops AS (
    SELECT engine, pool, max(epoch("at")) AS stopped_s
    FROM event
    WHERE kind = 'stop' AND "at" >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND "at" < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
    GROUP BY engine, pool
)
SELECT engine, pool, last_s, stopped_s FROM heard LEFT JOIN stops USING (engine, pool)
ORDER BY engine, pool
