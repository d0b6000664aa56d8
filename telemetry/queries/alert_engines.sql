-- What was observed of each engine of one pool over [start, end) and from `near` on, and its last word.
SELECT engine,
       min(epoch(bucket_start)) AS first_s,
       max(epoch(bucket_start) + least(bucket_s, seen_s)) AS last_s,
       sum(seen_s) AS observed_s,
       coalesce(sum(seen_s) FILTER (
           WHERE bucket_start >= make_timestamp(CAST(round($near * 1e6) AS BIGINT))), 0)
           AS near_observed_s,
       arg_max(token_age_s, bucket_start) AS token_age_s,
       max(bucket_s) AS bucket_s
FROM (
    SELECT engine, bucket_start, max(bucket_s) AS bucket_s,
           least(max(bucket_s), sum(coalesce(observed_seconds, bucket_s))) AS seen_s,
           -- Of the runs of one bucket only the one that goes on says how old the last token is.
           arg_max(coalesce(last_token_age_s, 0), run_id) AS token_age_s
    FROM engine_minute
    WHERE bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
      AND pool = $pool
    GROUP BY engine, bucket_start
)
GROUP BY engine
ORDER BY engine
