-- Start of the first bucket and end of the last one, as instants.
SELECT min(first) AS first_bucket_start, max(last) AS last_bucket_end
FROM (
    SELECT min(bucket_start) AS first,
           max(bucket_start + to_microseconds(CAST(bucket_s * 1e6 AS BIGINT))) AS last
    FROM engine_minute
    UNION ALL
    SELECT min(bucket_start),
           max(bucket_start + to_microseconds(CAST(bucket_s * 1e6 AS BIGINT)))
    FROM tenant_minute
)
