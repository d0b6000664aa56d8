-- What a replay takes of requests that arrived in [start, end): when they came, what they asked for and got.
-- In order of arrival.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
)
SELECT engine, run_id, pool, tenant, adapter, outcome, reject_reason, is_retry,
       epoch(arrived) AS arrived, epoch(first_token) AS first_token,
       epoch(last_token) AS last_token, epoch(ended) AS ended,
       prompt_tokens, max_tokens, cached_tokens, output_tokens, wait_front_s, ttft_s, tpot_s,
       max_gap_s
FROM request, bounds
WHERE arrived >= low AND arrived < high
ORDER BY request.arrived, engine, run_id, pool, request_id
