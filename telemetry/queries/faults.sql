-- Events of [start, end) that say something was lost, spoiled or failed: a row a kind and sentence.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
)
SELECT engine, kind, detail, count(*) AS times, max("at") AS last_at
FROM event, bounds
WHERE "at" >= low AND "at" < high AND kind IN ('fault', 'quarantine')
GROUP BY engine, kind, detail
ORDER BY last_at DESC, engine, kind, detail
