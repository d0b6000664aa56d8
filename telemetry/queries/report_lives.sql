-- When requests arrived and ended, whose they were and which adapter they named: what findings take
-- of a request's row. In order of arrival, for those that arrived in [start, end).
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
)
SELECT pool, tenant, epoch(arrived) AS arrived, epoch(ended) AS ended, adapter
FROM request, bounds
WHERE arrived >= low AND arrived < high
ORDER BY request.arrived, pool, tenant, request_id
