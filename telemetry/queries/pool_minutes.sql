-- One row a pool and bucket that starts in [start, end): what the workers did, added over runs.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
)
SELECT bucket_start, bucket_s, engine, pool,
       CAST(sum(steps) AS BIGINT) AS steps,
       sum(busy_s) AS busy_s,
       sum(idle_s) AS idle_s,
       sum(predicted_s) AS predicted_s,
       sum(capacity_s) AS capacity_s,
       sum(base_cost_s) AS base_cost_s,
       CAST(sum(prefill_tokens) AS BIGINT) AS prefill_tokens,
       CAST(sum(decode_tokens) AS BIGINT) AS decode_tokens,
       sum(running_avg * observed_seconds) / nullif(sum(observed_seconds), 0) AS running_avg,
       max(running_max) AS running_max,
       sum(waiting_avg * observed_seconds) / nullif(sum(observed_seconds), 0) AS waiting_avg,
       max(waiting_max) AS waiting_max,
       max(slots) AS slots,
       max(pool_bytes) AS pool_bytes,
       sum(kv_bytes_avg * observed_seconds) / nullif(sum(observed_seconds), 0) AS kv_bytes_avg,
       sum(adapter_bytes_avg * observed_seconds) / nullif(sum(observed_seconds), 0)
           AS adapter_bytes_avg,
       sum(cached_bytes_avg * observed_seconds) / nullif(sum(observed_seconds), 0)
           AS cached_bytes_avg,
       sum(free_bytes_avg * observed_seconds) / nullif(sum(observed_seconds), 0)
           AS free_bytes_avg,
       max(last_token_age_s) AS last_token_age_s,
       max(last_token_age_max_s) AS last_token_age_max_s,
       CAST(sum(preemptions) AS BIGINT) AS preemptions,
       CAST(sum(evictions) AS BIGINT) AS evictions,
       CAST(sum(loads) AS BIGINT) AS loads,
       sum(observed_seconds) AS observed_seconds,
       max(policy_version) AS policy_version,
       bool_or(provisional) AS provisional
FROM engine_minute, bounds
WHERE bucket_start >= low AND bucket_start < high
GROUP BY bucket_start, bucket_s, engine, pool
ORDER BY bucket_start, engine, pool
