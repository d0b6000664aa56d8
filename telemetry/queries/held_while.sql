-- Who held what in the buckets that touch [start, end) while one tenant waited: charged seconds by
-- reason and holder, and the length and number of the buckets that they are of.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
)
SELECT reason, holder_kind, holder,
       sum(charged_s) AS charged_s,
       min(bucket_start) AS first_bucket_start,
       max(bucket_start + to_microseconds(CAST(bucket_s * 1e6 AS BIGINT))) AS last_bucket_end
FROM interference_minute, bounds
WHERE victim = $tenant AND engine = $engine AND run_id = $run_id AND pool = $pool
  AND bucket_start < high
  AND bucket_start + to_microseconds(CAST(bucket_s * 1e6 AS BIGINT)) > low
GROUP BY reason, holder_kind, holder
HAVING sum(charged_s) IS NOT NULL
ORDER BY reason, charged_s DESC, holder_kind, holder
