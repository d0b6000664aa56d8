-- One row a tenant over the buckets that start in [start, end): is every request accounted for?
-- Offered against rejected + admitted, and admitted against outcomes + change in flight. Both
-- unaccounted columns are 0 when nothing was lost or doubled.
-- In flight is the worker's; a tenant without a row beside its pool's last one has none there.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
),
minutes AS (
    SELECT t.* FROM tenant_minute AS t, bounds WHERE bucket_start >= low AND bucket_start < high
),
sums AS (
    SELECT tenant,
           CAST(coalesce(sum(offered_requests), 0) AS BIGINT) AS offered,
           CAST(coalesce(sum(admitted_requests), 0) AS BIGINT) AS admitted,
           CAST(sum(coalesce(rejected_rpm_requests, 0) + coalesce(rejected_tpm_requests, 0)
                    + coalesce(rejected_concurrency_requests, 0)
                    + coalesce(rejected_queue_requests, 0)
                    + coalesce(rejected_impossible_requests, 0)) AS BIGINT) AS rejected,
           CAST(sum(coalesce(finished, 0) + coalesce(aborted, 0) + coalesce(failed, 0)
                    + coalesce(timed_out, 0)) AS BIGINT) AS outcomes
    FROM minutes
    GROUP BY tenant
),
last_of_run AS (
    SELECT engine, run_id, pool,
           max(bucket_start) FILTER (WHERE bucket_start < high) AS at_end,
           max(bucket_start) FILTER (WHERE bucket_start < low) AS at_start
    FROM engine_minute, bounds
    GROUP BY engine, run_id, pool
),
flying AS (
    SELECT t.tenant,
           sum(t.in_flight) FILTER (WHERE t.bucket_start = l.at_end) AS at_end,
           sum(t.in_flight) FILTER (WHERE t.bucket_start = l.at_start) AS at_start
    FROM tenant_minute AS t JOIN last_of_run AS l
      ON t.engine = l.engine AND t.run_id = l.run_id AND t.pool = l.pool
     AND t.bucket_start IN (l.at_end, l.at_start)
    GROUP BY t.tenant
)
SELECT s.tenant, s.offered, s.rejected, s.admitted,
       s.offered - s.rejected - s.admitted AS offered_unaccounted,
       s.outcomes,
       CAST(coalesce(f.at_start, 0) AS BIGINT) AS in_flight_at_start,
       CAST(coalesce(f.at_end, 0) AS BIGINT) AS in_flight_at_end,
       CAST(s.admitted - s.outcomes - coalesce(f.at_end, 0) + coalesce(f.at_start, 0) AS BIGINT)
           AS admitted_unaccounted
FROM sums AS s LEFT JOIN flying AS f ON f.tenant = s.tenant
ORDER BY s.tenant
