-- One row a tenant over the buckets that start in [start, end): asked, got, waited, missed.
-- Sums add over engines and runs. Averages weigh by what their pools were observed in the window,
-- so a tenant idle in half of it has half the average. Maxima are the largest of any one bucket.
-- The bounds stand where the rows are read: so whole runs of rows outside are not even looked at.
WITH minutes AS (
    SELECT t.* FROM tenant_minute AS t
    WHERE bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
),
observed AS (
    SELECT engine, pool, sum(observed_seconds) AS observed_s
    FROM engine_minute
    WHERE bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
    GROUP BY engine, pool
),
per_pool AS (
    SELECT m.tenant, m.engine, m.pool,
           coalesce(any_value(o.observed_s), sum(m.observed_seconds)) AS observed_s,
           sum(kv_bytes_avg * m.observed_seconds) AS kv_byte_s,
           sum(adapter_bytes_avg * m.observed_seconds) AS adapter_byte_s,
           sum(waiting_avg * m.observed_seconds) AS waiting_s,
           sum(resident_seqs_avg * m.observed_seconds) AS resident_s
    FROM minutes AS m LEFT JOIN observed AS o ON o.engine = m.engine AND o.pool = m.pool
    GROUP BY m.tenant, m.engine, m.pool
),
averages AS (
    SELECT tenant,
           sum(observed_s) AS observed_s,
           sum(kv_byte_s) / nullif(sum(observed_s), 0) AS kv_bytes_avg,
           sum(adapter_byte_s) / nullif(sum(observed_s), 0) AS adapter_bytes_avg,
           sum(waiting_s) / nullif(sum(observed_s), 0) AS waiting_avg,
           sum(resident_s) / nullif(sum(observed_s), 0) AS resident_seqs_avg
    FROM per_pool
    GROUP BY tenant
),
sums AS (
    SELECT tenant,
           CAST(sum(offered_requests) AS BIGINT) AS offered_requests,
           CAST(sum(offered_retries) AS BIGINT) AS offered_retries,
           CAST(sum(admitted_requests) AS BIGINT) AS admitted_requests,
           CAST(sum(coalesce(rejected_rpm_requests, 0) + coalesce(rejected_tpm_requests, 0)
                    + coalesce(rejected_concurrency_requests, 0)
                    + coalesce(rejected_queue_requests, 0)
                    + coalesce(rejected_impossible_requests, 0)) AS BIGINT) AS rejected_requests,
           CAST(sum(prompt_tokens) AS BIGINT) AS prompt_tokens,
           CAST(sum(cached_tokens) AS BIGINT) AS cached_tokens,
           CAST(sum(output_tokens) AS BIGINT) AS output_tokens,
           sum(service) AS service,
           sum(engine_seconds) AS engine_seconds,
           sum(wait_front_s) AS wait_front_s,
           sum(wait_slot_s) AS wait_slot_s,
           sum(wait_budget_s) AS wait_budget_s,
           sum(wait_kv_s) AS wait_kv_s,
           sum(wait_adapter_s) AS wait_adapter_s,
           sum(stall_s) AS stall_s,
           CAST(sum(slo_eligible) AS BIGINT) AS slo_eligible,
           CAST(sum(slo_met) AS BIGINT) AS slo_met,
           CAST(sum(slo_missed) AS BIGINT) AS slo_missed,
           CAST(sum(missed_waiting) AS BIGINT) AS missed_waiting,
           CAST(sum(goodput_tokens) AS BIGINT) AS goodput_tokens,
           CAST(sum(finished) AS BIGINT) AS finished,
           CAST(sum(aborted) AS BIGINT) AS aborted,
           CAST(sum(failed) AS BIGINT) AS failed,
           CAST(sum(timed_out) AS BIGINT) AS timed_out,
           max(waiting_max) AS waiting_max,
           max(oldest_wait_s) AS oldest_wait_s,
           max(kv_bytes_max) AS kv_bytes_max,
           arg_max(weight, bucket_start) AS weight,
           bool_or(provisional) AS provisional
    FROM minutes
    GROUP BY tenant
)
SELECT s.* EXCLUDE (provisional),
       s.service / nullif(sum(s.service) OVER (), 0) AS share,
       a.waiting_avg, a.resident_seqs_avg, a.kv_bytes_avg, a.adapter_bytes_avg, a.observed_s,
       s.provisional
FROM sums AS s JOIN averages AS a ON a.tenant = s.tenant
ORDER BY s.service DESC NULLS LAST, s.tenant
