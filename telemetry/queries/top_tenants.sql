-- The first n tenants by service over the buckets that start in [start, end), with what they waited.
-- `share` is of the whole pool's service, those beyond n included.
-- The bounds stand where the rows are read: so whole runs of rows outside are not even looked at.
WITH sums AS (
    SELECT tenant,
           sum(service) AS service,
           CAST(sum(output_tokens) AS BIGINT) AS output_tokens,
           sum(coalesce(wait_slot_s, 0) + coalesce(wait_budget_s, 0)
               + coalesce(wait_kv_s, 0) + coalesce(wait_adapter_s, 0)) AS wait_s,
           sum(stall_s) AS stall_s,
           CAST(sum(slo_eligible) AS BIGINT) AS slo_eligible,
           CAST(sum(slo_missed) AS BIGINT) AS slo_missed,
           bool_or(provisional) AS provisional
    FROM tenant_minute
    WHERE bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
    GROUP BY tenant
)
SELECT tenant, service,
       service / nullif(sum(service) OVER (), 0) AS share,
       output_tokens, wait_s, stall_s, slo_eligible, slo_missed, provisional
FROM sums
ORDER BY service DESC NULLS LAST, tenant
LIMIT CAST($n AS BIGINT)
