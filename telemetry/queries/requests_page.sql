-- Requests of one pool that arrived in [start, end) and had ended by then, with the parts of their lives.
-- `one`: of `tenant` alone. `which`: all, missed, refused, failed, preempted or retries. `sort`: newest,
-- slowest or ttft. At most `most` of them; `matching` says of how many.
SELECT request_id, tenant, adapter, adapter_state, outcome, reject_reason, is_retry,
       epoch(arrived) AS arrived, epoch(ended) AS ended,
       prompt_tokens, cached_tokens, max_tokens, output_tokens, preemptions,
       wait_front_s, wait_slot_s, wait_budget_s, wait_kv_s, wait_adapter_s, prefill_s, ttft_s,
       coalesce(rewait_slot_s, 0.0) + coalesce(rewait_budget_s, 0.0) + coalesce(rewait_kv_s, 0.0)
           + coalesce(rewait_adapter_s, 0.0) AS rewait_s,
       epoch(last_token) - epoch(first_token) AS after_first_s,
       epoch(ended) - epoch(arrived) AS life_s,
       slo_met, missed_ttft, missed_tpot, missed_gap,
       count(*) OVER () AS matching
FROM request
WHERE pool = $pool
  AND arrived >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
  AND arrived < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
  AND ended <= make_timestamp(CAST(round($end * 1e6) AS BIGINT))
  AND (NOT $one OR tenant = $tenant)
  AND CASE $which
          WHEN 'missed' THEN slo_met = false
          WHEN 'refused' THEN outcome = 'rejected'
          WHEN 'failed' THEN outcome IN ('failed', 'timed_out', 'aborted')
          WHEN 'preempted' THEN preemptions > 0
          WHEN 'retries' THEN is_retry
          ELSE true
      END
ORDER BY CASE $sort WHEN 'slowest' THEN epoch(ended) - epoch(arrived)
                    WHEN 'ttft' THEN ttft_s
                    ELSE epoch(request.ended) END DESC NULLS LAST,
         request_id, run_id
LIMIT $most
