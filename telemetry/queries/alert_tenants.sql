-- Sums a tenant of one pool over [start, end) and over its part from `near` on; `waits` are all reasons.
SELECT tenant,
       coalesce(sum(slo_missed), 0) AS missed,
       coalesce(sum(slo_eligible), 0) AS eligible,
       coalesce(sum(service), 0) AS service,
       coalesce(sum(coalesce(wait_slot_s, 0) + coalesce(wait_budget_s, 0) + coalesce(wait_kv_s, 0)
                    + coalesce(wait_adapter_s, 0)), 0) AS waited_s,
       coalesce(sum(wait_adapter_s), 0) AS adapter_s,
       coalesce(sum(backlogged_s), 0) AS backlogged_s,
       coalesce(max(weight), 1) AS weight,
       coalesce(sum(slo_missed) FILTER (WHERE recent), 0) AS near_missed,
       coalesce(sum(slo_eligible) FILTER (WHERE recent), 0) AS near_eligible,
       coalesce(sum(service) FILTER (WHERE recent), 0) AS near_service,
       coalesce(sum(coalesce(wait_slot_s, 0) + coalesce(wait_budget_s, 0) + coalesce(wait_kv_s, 0)
                    + coalesce(wait_adapter_s, 0)) FILTER (WHERE recent), 0) AS near_waited_s,
       coalesce(sum(wait_adapter_s) FILTER (WHERE recent), 0) AS near_adapter_s,
       coalesce(sum(backlogged_s) FILTER (WHERE recent), 0) AS near_backlogged_s,
       coalesce(max(weight) FILTER (WHERE recent), 1) AS near_weight,
       bool_or(recent) AS near_there
FROM (
    SELECT *, bucket_start >= make_timestamp(CAST(round($near * 1e6) AS BIGINT)) AS recent
    FROM tenant_minute
    WHERE bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
      AND pool = $pool
)
GROUP BY tenant
ORDER BY tenant
