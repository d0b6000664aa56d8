-- What senders gave up in [start, end) and told of later: a row a sender, value = batches.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
)
SELECT engine, run_id, CAST(sum(coalesce(value, 0)) AS BIGINT) AS batches, count(*) AS times,
       max("at") AS last_at, arg_max(detail, "at") AS detail
FROM event, bounds
WHERE "at" >= low AND "at" < high AND kind = 'lost'
GROUP BY engine, run_id
ORDER BY batches DESC, engine, run_id
