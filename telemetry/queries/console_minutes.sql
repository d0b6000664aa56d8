-- Tenants' minutes whose bucket starts in [start, end), in order of time, as a console takes them in.
-- The columns of a picture and its verdict alone; the others are in console_minutes_all. The TTFT
-- histogram comes as text, and only of buckets that start at $near or later: a list a row is what
-- costs most, here and on the way.
SELECT epoch(bucket_start) AS bucket_start, bucket_s, engine, run_id, pool, tenant,
       offered_requests, offered_tokens, offered_retries, admitted_requests, rejected_rpm_requests,
       rejected_tpm_requests, rejected_concurrency_requests, rejected_queue_requests,
       rejected_impossible_requests, wait_front_s, quota_rpm_level, prompt_tokens, output_tokens,
       recomputed_tokens, service, engine_seconds, wait_slot_s, wait_budget_s, wait_kv_s,
       wait_adapter_s, stall_s, waiting_avg, oldest_wait_s, resident_seqs_avg, kv_bytes_avg,
       adapter_bytes_avg, swap_in_bytes, swap_out_bytes, evictions_caused, preemptions_caused,
       slo_eligible, slo_missed, finished,
       CASE WHEN epoch(bucket_start) >= $near THEN CAST(ttft AS VARCHAR) END AS ttft,
       weight, backlogged_s, observed_seconds, policy_version
FROM tenant_minute
WHERE bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
  AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
ORDER BY tenant_minute.bucket_start, engine, run_id, pool, tenant
