-- Charged seconds by bucket and cell of one pool's matrix, added over engines and runs, for the buckets
-- that start in [start, end). A cell without a number stays without one.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
)
SELECT epoch(bucket_start) AS bucket_start, bucket_s, pool, victim, reason, holder_kind, holder,
       sum(charged_s) AS charged_s
FROM interference_minute, bounds
WHERE pool = $pool AND bucket_start >= low AND bucket_start < high
GROUP BY bucket_start, bucket_s, pool, victim, reason, holder_kind, holder, charged_s IS NULL
ORDER BY bucket_start, victim, reason, holder_kind, holder
