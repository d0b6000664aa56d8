-- Every column of the tenants' minutes whose bucket starts in [start, end), in order of time, as a console takes them in.
-- Asked for only while somebody looks at the wide table; histograms as in console_minutes.
SELECT epoch(bucket_start) AS bucket_start, bucket_s, engine, run_id, pool, tenant,
       offered_requests, offered_tokens, offered_retries, admitted_requests, admitted_tokens,
       rejected_rpm_requests, rejected_rpm_tokens, rejected_tpm_requests, rejected_tpm_tokens,
       rejected_concurrency_requests, rejected_concurrency_tokens, rejected_queue_requests,
       rejected_queue_tokens, rejected_impossible_requests, rejected_impossible_tokens,
       wait_front_s, quota_rpm_level, quota_tpm_level, concurrency_in_use, prompt_tokens,
       cached_tokens, output_tokens, recomputed_tokens, service, engine_seconds, prefill_cost_s,
       wait_slot_s, wait_budget_s, wait_kv_s, wait_adapter_s, stall_s, waiting_avg, waiting_max,
       oldest_wait_s, resident_seqs_avg, resident_seqs_max, kv_bytes_avg, kv_bytes_max,
       adapter_bytes_avg, adapter_bytes_max, adapter_lookups, found_device, found_loading,
       found_host, found_disk, swap_in_bytes, swap_out_bytes, load_s, evictions_suffered,
       evictions_caused, preemptions_suffered, preemptions_caused, slo_eligible, slo_met,
       slo_missed, slo_missed_ttft, slo_missed_tpot, slo_missed_gap, missed_waiting,
       goodput_tokens, finished, aborted, failed, timed_out, in_flight,
       CASE WHEN epoch(bucket_start) >= $near THEN CAST(ttft AS VARCHAR) END AS ttft,
       CASE WHEN epoch(bucket_start) >= $near THEN CAST(tpot AS VARCHAR) END AS tpot,
       CASE WHEN epoch(bucket_start) >= $near THEN CAST(max_gap AS VARCHAR) END AS max_gap,
       vtc_counter, vtc_gap, vtc_gap_s, vtc_lifts, weight, backlogged_s, observed_seconds,
       policy_version
FROM tenant_minute
WHERE bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
  AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
ORDER BY tenant_minute.bucket_start, engine, run_id, pool, tenant
