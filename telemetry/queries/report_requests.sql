-- Requests of one pool that arrived in [low, high) ('now') or in one of the usual spans ('usual'), by tenant.
-- `usual` is JSON, [[from, to], ...]: spans that do not overlap; they may lie in [low, high). A number of a
-- usual request counts only where it was complete inside one of them: what is usual must not hold the
-- wait of those that arrived in time and were caught later. Percentiles are nearest rank; refused
-- requests have none. `start`, `end` hold all of it.
WITH spans AS (
    SELECT 'now' AS span, CAST($low AS DOUBLE) AS begins, CAST($high AS DOUBLE) AS ends
    UNION ALL
    SELECT 'usual', s[1], s[2]
    FROM (SELECT unnest(from_json(CAST($usual AS VARCHAR), '[["DOUBLE"]]')) AS s)
),
asked AS (
    SELECT *, epoch(arrived) AS arrived_s, epoch(ended) AS ended_s
    FROM request
    WHERE pool = $pool
      AND arrived >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND arrived < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
),
placed AS (
    SELECT s.span, r.*
    FROM asked AS r JOIN spans AS s ON r.arrived_s >= s.begins AND r.arrived_s < s.ends
),
told AS (
    SELECT p.*, outcome <> 'rejected' AS let_in,
           span = 'now' OR EXISTS (
               SELECT 1 FROM spans AS u
               WHERE u.span = 'usual' AND arrived_s + ttft_s >= u.begins
                 AND arrived_s + ttft_s < u.ends
           ) AS ttft_counts,
           span = 'now' OR ended IS NULL OR EXISTS (
               SELECT 1 FROM spans AS u
               WHERE u.span = 'usual' AND ended_s >= u.begins AND ended_s < u.ends
           ) AS gap_counts
    FROM placed AS p
)
SELECT span, tenant,
       count(*) AS requests,
       count(*) FILTER (WHERE let_in) AS let_in,
       count(ttft_s) FILTER (WHERE let_in AND ttft_counts) AS n,
       quantile_disc(ttft_s, 0.5) FILTER (WHERE let_in AND ttft_counts) AS ttft_p50_s,
       quantile_disc(ttft_s, 0.99) FILTER (WHERE let_in AND ttft_counts) AS ttft_p99_s,
       max(ttft_s) FILTER (WHERE let_in AND ttft_counts) AS ttft_max_s,
       max(max_gap_s) FILTER (WHERE let_in AND gap_counts) AS max_gap_s,
       CAST(coalesce(sum(coalesce(prompt_tokens, 0) - coalesce(cached_tokens, 0))
                     FILTER (WHERE admitted IS NOT NULL), 0) AS BIGINT) AS prompt_tokens,
       CAST(coalesce(sum(output_tokens), 0) AS BIGINT) AS output_tokens
FROM told
GROUP BY span, tenant
ORDER BY span, tenant
