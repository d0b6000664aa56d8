-- One tenant, bucket by bucket, for the buckets that start in [start, end). Sums add over engines
-- and runs; a bucket without a row is not here, whether it was idle or unheard: see `health`.
-- The bounds stand where the rows are read: so whole runs of rows outside are not even looked at.
SELECT bucket_start, bucket_s,
       CAST(sum(offered_requests) AS BIGINT) AS offered_requests,
       CAST(sum(prompt_tokens) AS BIGINT) AS prompt_tokens,
       CAST(sum(output_tokens) AS BIGINT) AS output_tokens,
       sum(service) AS service,
       sum(engine_seconds) AS engine_seconds,
       sum(wait_slot_s) AS wait_slot_s,
       sum(wait_budget_s) AS wait_budget_s,
       sum(wait_kv_s) AS wait_kv_s,
       sum(wait_adapter_s) AS wait_adapter_s,
       sum(stall_s) AS stall_s,
       sum(kv_bytes_avg) AS kv_bytes_avg,
       CAST(sum(slo_eligible) AS BIGINT) AS slo_eligible,
       CAST(sum(slo_missed) AS BIGINT) AS slo_missed,
       bool_or(provisional) AS provisional
FROM tenant_minute
WHERE tenant = $tenant
  AND bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
  AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
GROUP BY bucket_start, bucket_s
ORDER BY bucket_start, bucket_s
