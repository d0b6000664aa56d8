-- Where adapters of one pool were, bucket by bucket over [start, end): the $most that were loaded most often.
-- `resident_s` on the device, `loads` in that bucket, added over engines. A bucket in which an adapter
-- was not on the device and nobody asked for it is not here.
WITH minutes AS (
    SELECT * FROM adapter_minute
    WHERE pool = $pool
      AND bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
),
ranked AS (
    SELECT adapter FROM minutes GROUP BY adapter
    ORDER BY coalesce(sum(loads), 0) DESC, coalesce(sum(resident_s), 0) DESC,
             coalesce(sum(lookups), 0) DESC, adapter
    LIMIT CAST($most AS BIGINT)
)
SELECT epoch(bucket_start) AS bucket_start, bucket_s, adapter,
       sum(resident_s) AS resident_s, CAST(sum(loads) AS BIGINT) AS loads
FROM minutes JOIN ranked USING (adapter)
GROUP BY bucket_start, bucket_s, adapter
ORDER BY bucket_start, adapter
