-- The slowest requests to a first token that arrived in [start, end), at most n of each tenant named
-- (JSON, a list). One that never had a first token counts with the time until it ended.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
),
asked AS (
    SELECT r.*, coalesce(ttft_s, epoch(ended) - epoch(arrived)) AS waited_s
    FROM request AS r, bounds
    WHERE pool = $pool AND arrived >= low AND arrived < high AND outcome <> 'rejected'
      AND tenant IN (SELECT unnest(from_json(CAST($tenants AS VARCHAR), '["VARCHAR"]')))
)
SELECT tenant, engine, run_id, request_id, arrived, outcome, ttft_s, waited_s, wait_front_s,
       wait_slot_s, wait_budget_s, wait_kv_s, wait_adapter_s, prefill_s, max_gap_s, stall_s,
       prompt_tokens, output_tokens, preemptions
FROM asked
WHERE waited_s IS NOT NULL
QUALIFY row_number() OVER (
    PARTITION BY tenant ORDER BY waited_s DESC, arrived, request_id
) <= CAST($n AS BIGINT)
ORDER BY waited_s DESC, arrived, request_id
