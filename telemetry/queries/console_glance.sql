-- A pool's tenants with the most service, waits or misses in [start, end), bucket by bucket, and all others as one.
-- The others' row has no tenant: what adds up is added, of ages the oldest; `others` says how many
-- they are. Weights are of those that were backlogged; the others' is the whole pool's, on every
-- engine the same: whoever waits at two engines has one share.
WITH mine AS (
    SELECT bucket_start, bucket_s, engine, run_id, pool, tenant, offered_requests,
           admitted_requests, rejected_rpm_requests, rejected_tpm_requests,
           rejected_concurrency_requests, rejected_queue_requests, prompt_tokens, output_tokens,
           service, engine_seconds, wait_slot_s, wait_budget_s, wait_kv_s, wait_adapter_s, stall_s,
           waiting_avg, oldest_wait_s, resident_seqs_avg, kv_bytes_avg, swap_in_bytes,
           swap_out_bytes, preemptions_caused, evictions_caused, slo_eligible, slo_missed, weight,
           backlogged_s, observed_seconds
    FROM tenant_minute
    WHERE bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
      AND pool = $pool
),
summed AS (
    SELECT tenant, coalesce(sum(service), 0) AS got,
           coalesce(sum(wait_slot_s), 0) + coalesce(sum(wait_budget_s), 0)
               + coalesce(sum(wait_kv_s), 0) + coalesce(sum(wait_adapter_s), 0) AS waited,
           coalesce(sum(slo_missed), 0) AS missed
    FROM mine
    GROUP BY tenant
),
ranked AS (
    SELECT tenant,
           row_number() OVER (ORDER BY got DESC, tenant) <= $top
               OR row_number() OVER (ORDER BY waited DESC, tenant) <= $top
               OR row_number() OVER (ORDER BY missed DESC, waited DESC, tenant) <= $top AS shown
    FROM summed
),
owed AS (
    SELECT bucket_start, sum(weight) AS due
    FROM (
        SELECT bucket_start, tenant, max(coalesce(weight, 1.0)) AS weight
        FROM mine JOIN ranked USING (tenant)
        WHERE NOT shown AND backlogged_s > 0
        GROUP BY bucket_start, tenant
    )
    GROUP BY bucket_start
)
SELECT epoch(bucket_start) AS bucket_start, bucket_s, engine, run_id, pool,
       CASE WHEN shown THEN mine.tenant END AS tenant,
       CAST(sum(offered_requests) AS BIGINT) AS offered_requests,
       CAST(sum(admitted_requests) AS BIGINT) AS admitted_requests,
       CAST(sum(rejected_rpm_requests) AS BIGINT) AS rejected_rpm_requests,
       CAST(sum(rejected_tpm_requests) AS BIGINT) AS rejected_tpm_requests,
       CAST(sum(rejected_concurrency_requests) AS BIGINT) AS rejected_concurrency_requests,
       CAST(sum(rejected_queue_requests) AS BIGINT) AS rejected_queue_requests,
       CAST(sum(prompt_tokens) AS BIGINT) AS prompt_tokens,
       CAST(sum(output_tokens) AS BIGINT) AS output_tokens,
       sum(service) AS service, sum(engine_seconds) AS engine_seconds,
       sum(wait_slot_s) AS wait_slot_s, sum(wait_budget_s) AS wait_budget_s,
       sum(wait_kv_s) AS wait_kv_s, sum(wait_adapter_s) AS wait_adapter_s, sum(stall_s) AS stall_s,
       sum(waiting_avg) AS waiting_avg, max(oldest_wait_s) AS oldest_wait_s,
       sum(resident_seqs_avg) AS resident_seqs_avg, sum(kv_bytes_avg) AS kv_bytes_avg,
       CAST(sum(swap_in_bytes) AS BIGINT) AS swap_in_bytes,
       CAST(sum(swap_out_bytes) AS BIGINT) AS swap_out_bytes,
       sum(preemptions_caused) AS preemptions_caused,
       sum(evictions_caused) AS evictions_caused,
       CAST(sum(slo_eligible) AS BIGINT) AS slo_eligible,
       CAST(sum(slo_missed) AS BIGINT) AS slo_missed,
       CASE WHEN shown THEN sum(coalesce(weight, 1.0)) FILTER (WHERE backlogged_s > 0)
            ELSE max(due) FILTER (WHERE backlogged_s > 0) END AS weight,
       max(backlogged_s) AS backlogged_s, max(observed_seconds) AS observed_seconds,
       CASE WHEN NOT shown THEN (SELECT count(*) FROM ranked WHERE NOT shown) END AS others
FROM mine JOIN ranked USING (tenant) LEFT JOIN owed USING (bucket_start)
GROUP BY bucket_start, bucket_s, engine, run_id, pool, shown,
         CASE WHEN shown THEN mine.tenant END
ORDER BY bucket_start, engine, run_id, tenant NULLS LAST
