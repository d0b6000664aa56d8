-- One row a period (a day or a month, UTC) of one tenant over the buckets that start in [start, end).
-- Tokens are booked when they were computed, requests when they were offered and when they ended.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
)
SELECT strftime(bucket_start, CASE WHEN $by = 'month' THEN '%Y-%m' ELSE '%Y-%m-%d' END) AS period,
       tenant,
       CAST(coalesce(sum(offered_requests), 0) AS BIGINT) AS offered_requests,
       CAST(coalesce(sum(admitted_requests), 0) AS BIGINT) AS admitted_requests,
       CAST(coalesce(sum(finished), 0) AS BIGINT) AS finished,
       CAST(coalesce(sum(prompt_tokens), 0) AS BIGINT) AS prompt_tokens,
       CAST(coalesce(sum(cached_tokens), 0) AS BIGINT) AS cached_tokens,
       CAST(coalesce(sum(output_tokens), 0) AS BIGINT) AS output_tokens,
       CAST(coalesce(sum(recomputed_tokens), 0) AS BIGINT) AS recomputed_tokens,
       coalesce(sum(engine_seconds), 0) AS engine_seconds,
       bool_or(provisional) AS provisional
FROM tenant_minute, bounds
WHERE bucket_start >= low AND bucket_start < high AND tenant = $tenant
GROUP BY ALL
ORDER BY period
