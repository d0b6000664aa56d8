-- What came in [start, end) that is not of the vocabulary: a row a metric and sender, most first.
-- `series` are distinct sets of attributes; `last_value` is a gauge's or sum's newest number.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
)
SELECT engine, metric, kind, any_value(unit) AS unit,
       count(*) AS points,
       count(DISTINCT attributes) AS series,
       max("at") AS last_at,
       arg_max("value", "at") AS last_value,
       CAST(sum("count") AS BIGINT) AS observations
FROM foreign_metric, bounds
WHERE "at" >= low AND "at" < high
GROUP BY engine, metric, kind
ORDER BY points DESC, engine, metric, kind
