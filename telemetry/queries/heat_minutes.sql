-- A figure by bucket and tenant of one pool over [start, end): the $most tenants with most of it, the rest
-- added up without a name. `part` of `whole` where the figure is a share; `tenants` are in the line.
-- `ttft` is the histogram of first tokens, for $metric = 'ttft' alone. Metrics: share, wait, miss, ttft,
-- kv, swap, refused. For a rest of kv bytes the sum is of averages; a bucket without a row is not here.
WITH mine AS (
    SELECT bucket_start, bucket_s, tenant, service,
           CASE $metric
               WHEN 'share' THEN service
               WHEN 'wait' THEN coalesce(wait_slot_s, 0) + coalesce(wait_budget_s, 0)
                                + coalesce(wait_kv_s, 0) + coalesce(wait_adapter_s, 0)
               WHEN 'miss' THEN CAST(slo_missed AS DOUBLE)
               WHEN 'ttft' THEN coalesce(wait_front_s, 0) + coalesce(wait_slot_s, 0)
                                + coalesce(wait_budget_s, 0) + coalesce(wait_kv_s, 0)
                                + coalesce(wait_adapter_s, 0)
               WHEN 'kv' THEN kv_bytes_avg
               WHEN 'swap' THEN CAST(coalesce(swap_in_bytes, 0) + coalesce(swap_out_bytes, 0)
                                     AS DOUBLE)
               WHEN 'refused' THEN CAST(coalesce(rejected_rpm_requests, 0)
                                        + coalesce(rejected_tpm_requests, 0)
                                        + coalesce(rejected_concurrency_requests, 0)
                                        + coalesce(rejected_queue_requests, 0) AS DOUBLE)
           END AS part,
           CASE $metric WHEN 'miss' THEN CAST(slo_eligible AS DOUBLE) END AS of_which,
           CASE WHEN $metric = 'ttft' THEN ttft END AS ttft
    FROM tenant_minute
    WHERE pool = $pool
      AND bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
),
ranked AS (
    SELECT tenant FROM mine
    GROUP BY tenant
    ORDER BY coalesce(sum(part), 0) DESC, coalesce(sum(service), 0) DESC, tenant
    LIMIT CAST($most AS BIGINT)
),
wholes AS (
    SELECT bucket_start, sum(service) AS service FROM mine GROUP BY bucket_start
),
named AS (
    SELECT m.*, r.tenant AS who FROM mine AS m LEFT JOIN ranked AS r ON r.tenant = m.tenant
)
SELECT epoch(n.bucket_start) AS bucket_start, n.bucket_s, n.who AS tenant,
       count(DISTINCT n.tenant) AS tenants,
       sum(n.part) AS part,
       CASE WHEN $metric = 'share' THEN any_value(w.service) ELSE sum(n.of_which) END AS whole,
       CASE WHEN count(n.ttft) > 0 THEN
           [sum(n.ttft[1]), sum(n.ttft[2]), sum(n.ttft[3]), sum(n.ttft[4]), sum(n.ttft[5]),
            sum(n.ttft[6]), sum(n.ttft[7]), sum(n.ttft[8]), sum(n.ttft[9]), sum(n.ttft[10]),
            sum(n.ttft[11]), sum(n.ttft[12]), sum(n.ttft[13]), sum(n.ttft[14]), sum(n.ttft[15]),
            sum(n.ttft[16]), sum(n.ttft[17]), sum(n.ttft[18]), sum(n.ttft[19]), sum(n.ttft[20]),
            sum(n.ttft[21])]::BIGINT[] END AS ttft
FROM named AS n JOIN wholes AS w USING (bucket_start)
GROUP BY n.bucket_start, n.bucket_s, n.who
ORDER BY n.bucket_start, n.who NULLS LAST
