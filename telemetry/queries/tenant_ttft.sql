-- One tenant's times to the first token by where its adapter was found, in octaves of a millisecond.
-- Of requests that arrived in [start, end) and had ended by then: what a reader at `end` could know.
WITH told AS (
    SELECT coalesce(adapter_state, CASE WHEN adapter IS NULL THEN 'base' ELSE 'unknown' END)
               AS state,
           ttft_s,
           CAST(least(19, greatest(0, floor(log2(greatest(ttft_s, 1e-6) * 1000)))) AS BIGINT)
               AS octave
    FROM request
    WHERE pool = $pool AND tenant = $tenant AND ttft_s IS NOT NULL
      AND arrived >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND arrived < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
      AND ended <= make_timestamp(CAST(round($end * 1e6) AS BIGINT))
),
stated AS (
    SELECT state, count(*) AS n, quantile_disc(ttft_s, 0.5) AS p50_s,
           quantile_disc(ttft_s, 0.99) AS p99_s, max(ttft_s) AS max_s
    FROM told
    GROUP BY state
),
counted AS (SELECT state, octave, count(*) AS requests FROM told GROUP BY state, octave)
SELECT state, c.octave, c.requests, s.n, s.p50_s, s.p99_s, s.max_s
FROM counted AS c JOIN stated AS s USING (state)
ORDER BY state, octave
