-- What one pool's requests found of their adapters at arrival over [start, end), and bytes moved.
-- `seconds` is the time that was observed: of engines side by side the longest.
WITH minutes AS (
    SELECT * FROM tenant_minute
    WHERE pool = $pool
      AND bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
),
heard AS (
    SELECT bucket_start, engine, sum(observed_seconds) AS seconds FROM engine_minute
    WHERE pool = $pool
      AND bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
    GROUP BY bucket_start, engine
),
lasted AS (SELECT sum(s) AS seconds FROM (SELECT max(seconds) AS s FROM heard GROUP BY bucket_start))
SELECT CAST(sum(adapter_lookups) AS BIGINT) AS lookups,
       CAST(sum(found_device) AS BIGINT) AS device,
       CAST(sum(found_loading) AS BIGINT) AS loading,
       CAST(sum(found_host) AS BIGINT) AS host,
       CAST(sum(found_disk) AS BIGINT) AS disk,
       CAST(sum(swap_in_bytes) AS BIGINT) AS in_bytes,
       CAST(sum(swap_out_bytes) AS BIGINT) AS out_bytes,
       any_value(l.seconds) AS seconds
FROM minutes, lasted AS l
