-- Of tenants' minutes what reports and replays read, of buckets that start in [start, end), in order of
-- time. The rest of a minute, its histograms above all, is half of what reading it costs.
SELECT epoch(bucket_start) AS bucket_start, bucket_s, engine, run_id, pool, tenant,
       offered_requests, offered_tokens, offered_retries, admitted_requests,
       rejected_rpm_requests, rejected_tpm_requests, rejected_concurrency_requests,
       rejected_queue_requests, rejected_impossible_requests, wait_front_s, quota_rpm_level,
       quota_tpm_level, concurrency_in_use, prompt_tokens, output_tokens, recomputed_tokens,
       service, wait_slot_s, wait_budget_s, wait_kv_s, wait_adapter_s, stall_s, kv_bytes_avg,
       adapter_bytes_avg, swap_in_bytes, load_s, evictions_caused, preemptions_caused,
       slo_eligible, slo_missed, goodput_tokens, finished, weight, observed_seconds
FROM tenant_minute
WHERE bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
  AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
ORDER BY tenant_minute.bucket_start, engine, run_id, pool, tenant
