-- One row a tenant over the requests that arrived in [start, end): latencies, goodput, outcomes.
-- The p99 of under 20 values is their maximum; the n_ columns say how many there were.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
),
asked AS (
    SELECT r.* FROM request AS r, bounds WHERE arrived >= low AND arrived < high
)
SELECT tenant,
       count(*) AS n,
       count(ttft_s) AS n_ttft,
       quantile_cont(ttft_s, 0.5) AS ttft_p50_s,
       CASE WHEN count(ttft_s) < 20 THEN max(ttft_s) ELSE quantile_cont(ttft_s, 0.99) END
           AS ttft_p99_s,
       max(ttft_s) AS ttft_max_s,
       quantile_cont(tpot_s, 0.5) AS tpot_p50_s,
       count(max_gap_s) AS n_gap,
       CASE WHEN count(max_gap_s) < 20 THEN max(max_gap_s) ELSE quantile_cont(max_gap_s, 0.99) END
           AS max_gap_p99_s,
       max(max_gap_s) AS max_gap_max_s,
       count(slo_met) AS eligible,
       count(*) FILTER (WHERE slo_met) AS met,
       count(*) FILTER (WHERE NOT slo_met) AS missed,
       CAST(coalesce(sum(output_tokens) FILTER (WHERE slo_met), 0) AS BIGINT) AS goodput_tokens,
       CAST(coalesce(sum(output_tokens), 0) AS BIGINT) AS output_tokens,
       count(*) FILTER (WHERE outcome = 'finished') AS finished,
       count(*) FILTER (WHERE outcome = 'aborted') AS aborted,
       count(*) FILTER (WHERE outcome = 'failed') AS failed,
       count(*) FILTER (WHERE outcome = 'timed_out') AS timed_out,
       count(*) FILTER (WHERE outcome = 'rejected') AS rejected
FROM asked
GROUP BY tenant
ORDER BY tenant
