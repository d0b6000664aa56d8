-- One tenant of one pool, bucket by bucket, beside its pool, for the buckets that start in [start, end).
-- A bucket in which an engine was heard is here: without a row of the tenant it was idle then (`there`
-- is false). One without an engine is not here: nothing is known of it. Sums add over engines and runs.
WITH heard AS (
    SELECT bucket_start, bucket_s, max(observed_s) AS observed_s, sum(pool_bytes) AS pool_bytes,
           bool_or(provisional) AS provisional
    FROM (
        SELECT bucket_start, bucket_s, engine, sum(observed_seconds) AS observed_s,
               max(pool_bytes) AS pool_bytes, bool_or(provisional) AS provisional
        FROM engine_minute
        WHERE pool = $pool
          AND bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
          AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
        GROUP BY bucket_start, bucket_s, engine
    )
    GROUP BY bucket_start, bucket_s
),
minutes AS (
    SELECT * FROM tenant_minute
    WHERE pool = $pool
      AND bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
),
everyone AS (
    SELECT bucket_start, bucket_s, sum(service) AS pool_service,
           sum(weight) FILTER (WHERE backlogged) AS backlogged_weight
    FROM (
        SELECT bucket_start, bucket_s, tenant, sum(service) AS service,
               max(coalesce(weight, 1.0)) AS weight, bool_or(backlogged_s > 0.0) AS backlogged
        FROM minutes
        GROUP BY bucket_start, bucket_s, tenant
    )
    GROUP BY bucket_start, bucket_s
),
mine AS (
    SELECT bucket_start, bucket_s,
           true AS there,
           sum(service) AS service,
           max(coalesce(weight, 1.0)) AS weight,
           bool_or(backlogged_s > 0.0) AS backlogged,
           sum(wait_front_s) AS wait_front_s,
           sum(wait_slot_s) AS wait_slot_s,
           sum(wait_budget_s) AS wait_budget_s,
           sum(wait_kv_s) AS wait_kv_s,
           sum(wait_adapter_s) AS wait_adapter_s,
           sum(stall_s) AS stall_s,
           sum(kv_bytes_avg) AS kv_bytes_avg,
           CAST(sum(adapter_lookups) AS BIGINT) AS adapter_lookups,
           CAST(sum(found_device) AS BIGINT) AS found_device,
           CAST(sum(found_loading) AS BIGINT) AS found_loading,
           CAST(sum(found_host) AS BIGINT) AS found_host,
           CAST(sum(found_disk) AS BIGINT) AS found_disk,
           CAST(sum(swap_in_bytes) AS BIGINT) AS swap_in_bytes,
           CAST(sum(swap_out_bytes) AS BIGINT) AS swap_out_bytes,
           CAST(sum(evictions_suffered) AS BIGINT) AS evictions_suffered,
           CAST(sum(preemptions_suffered) AS BIGINT) AS preemptions_suffered,
           CAST(sum(slo_eligible) AS BIGINT) AS slo_eligible,
           CAST(sum(slo_missed) AS BIGINT) AS slo_missed,
           CAST(sum(slo_missed_ttft) AS BIGINT) AS slo_missed_ttft,
           CAST(sum(slo_missed_tpot) AS BIGINT) AS slo_missed_tpot,
           CAST(sum(slo_missed_gap) AS BIGINT) AS slo_missed_gap,
           CAST(sum(missed_waiting) AS BIGINT) AS missed_waiting,
           CAST(sum(offered_requests) AS BIGINT) AS offered_requests,
           CAST(sum(admitted_requests) AS BIGINT) AS admitted_requests,
           CAST(sum(rejected_rpm_requests) AS BIGINT) AS rejected_rpm_requests,
           CAST(sum(rejected_tpm_requests) AS BIGINT) AS rejected_tpm_requests,
           CAST(sum(rejected_concurrency_requests) AS BIGINT) AS rejected_concurrency_requests,
           CAST(sum(rejected_queue_requests) AS BIGINT) AS rejected_queue_requests,
           CAST(sum(rejected_impossible_requests) AS BIGINT) AS rejected_impossible_requests,
           max(quota_rpm_level) AS quota_rpm_level,
           max(quota_tpm_level) AS quota_tpm_level,
           sum(concurrency_in_use) AS concurrency_in_use
    FROM minutes
    WHERE tenant = $tenant
    GROUP BY bucket_start, bucket_s
)
SELECT h.bucket_start, h.bucket_s, h.observed_s, h.pool_bytes,
       coalesce(h.provisional, false) AS provisional,
       coalesce(m.there, false) AS there,
       coalesce(e.pool_service, 0.0) AS pool_service,
       CASE WHEN m.backlogged THEN m.weight / nullif(e.backlogged_weight, 0.0) END AS fair_share,
       m.* EXCLUDE (bucket_start, bucket_s, there, weight, backlogged)
FROM heard AS h
LEFT JOIN everyone AS e ON e.bucket_start = h.bucket_start AND e.bucket_s = h.bucket_s
LEFT JOIN mine AS m ON m.bucket_start = h.bucket_start AND m.bucket_s = h.bucket_s
ORDER BY h.bucket_start, h.bucket_s
