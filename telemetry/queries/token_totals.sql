-- Tokens of each tenant over the buckets that start in [start, end).
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
)
SELECT tenant,
       CAST(coalesce(sum(prompt_tokens), 0) AS BIGINT) AS prompt_tokens,
       CAST(coalesce(sum(cached_tokens), 0) AS BIGINT) AS cached_tokens,
       CAST(coalesce(sum(output_tokens), 0) AS BIGINT) AS output_tokens,
       CAST(coalesce(sum(recomputed_tokens), 0) AS BIGINT) AS recomputed_tokens
FROM tenant_minute, bounds
WHERE bucket_start >= low AND bucket_start < high
GROUP BY tenant
ORDER BY tenant
