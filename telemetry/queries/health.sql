-- One row a pool over the buckets that start in [start, end): the last one, gaps, open ones.
-- A gap is time between two of the pool's buckets; `left_open` are buckets before the last one that
-- an emitter never sealed: at most its last ten seconds are missing from each.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
),
buckets AS (
    SELECT engine, pool, bucket_start,
           max(bucket_start + to_microseconds(CAST(bucket_s * 1e6 AS BIGINT))) AS bucket_end,
           max(bucket_s) AS bucket_s,
           bool_or(provisional) AS provisional
    FROM engine_minute, bounds
    WHERE bucket_start >= low AND bucket_start < high
    GROUP BY engine, pool, bucket_start
),
spaced AS (
    SELECT *,
           epoch(bucket_start) - epoch(lag(bucket_end) OVER whose) AS gap_s,
           max(bucket_start) OVER (PARTITION BY engine, pool) AS newest
    FROM buckets
    WINDOW whose AS (PARTITION BY engine, pool ORDER BY bucket_start)
)
SELECT engine, pool,
       max(bucket_end) AS last_bucket_end,
       max(bucket_end) FILTER (WHERE NOT provisional) AS last_sealed_end,
       max(bucket_s) AS bucket_s,
       count(*) AS buckets,
       count(*) FILTER (WHERE gap_s > bucket_s / 2) AS gaps,
       coalesce(sum(gap_s) FILTER (WHERE gap_s > bucket_s / 2), 0) AS gap_s,
       coalesce(max(gap_s) FILTER (WHERE gap_s > bucket_s / 2), 0) AS longest_gap_s,
       count(*) FILTER (WHERE provisional AND bucket_start < newest) AS left_open
FROM spaced
GROUP BY engine, pool
ORDER BY engine, pool
