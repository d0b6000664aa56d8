-- One row a period (a day or a month, UTC) over the buckets that start in [start, end): where the
-- engines' time went, added over pools and runs. Time beyond the model's expectation is capacity;
-- early is what steps took less than it: expected and billed, and not spent.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
)
SELECT strftime(bucket_start, CASE WHEN $by = 'month' THEN '%Y-%m' ELSE '%Y-%m-%d' END) AS period,
       coalesce(sum(observed_seconds), 0) AS observed_s,
       coalesce(sum(busy_s), 0) AS busy_s,
       coalesce(sum(idle_s), 0) AS idle_s,
       coalesce(sum(base_cost_s), 0) AS base_cost_s,
       coalesce(sum(capacity_s), 0) AS capacity_s,
       coalesce(sum(predicted_s), 0) AS predicted_s,
       coalesce(sum(predicted_s), 0) + coalesce(sum(capacity_s), 0) - coalesce(sum(busy_s), 0)
           AS early_s,
       bool_or(provisional) AS provisional
FROM engine_minute, bounds
WHERE bucket_start >= low AND bucket_start < high
GROUP BY ALL
ORDER BY period
