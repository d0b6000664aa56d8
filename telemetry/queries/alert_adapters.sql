-- Loads and reloads of adapters in one pool over [start, end), bytes of those asked for, and the room.
-- A reload: an adapter evicted within reload_s of its last eviction was loaded in between.
WITH moves AS (
    SELECT "at", lag("at") OVER (PARTITION BY engine, run_id, adapter ORDER BY "at") AS before
    FROM event
    WHERE kind = 'evict' AND pool = $pool AND adapter IS NOT NULL
      AND "at" >= make_timestamp(CAST(round(($start - $reload_s) * 1e6) AS BIGINT))
      AND "at" < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
),
counted AS (
    SELECT count(*) FILTER (WHERE epoch("at") - epoch(before) <= $reload_s) AS reloads
    FROM moves
    WHERE "at" >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
),
loaded AS (
    SELECT coalesce(sum(loads), 0) AS loads
    FROM engine_minute
    WHERE bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
      AND pool = $pool
),
asked AS (
    SELECT engine, run_id, adapter
    FROM adapter_minute
    WHERE bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
      AND pool = $pool AND lookups > 0
    GROUP BY engine, run_id, adapter
),
sizes AS (
    SELECT engine, run_id, adapter, max(bytes) AS bytes FROM adapter
    WHERE pool = $pool GROUP BY engine, run_id, adapter
),
working AS (
    SELECT sum(bytes) AS bytes FROM asked JOIN sizes USING (engine, run_id, adapter)
),
room AS (
    SELECT sum(bytes) AS bytes
    FROM (SELECT avg(pool_bytes - kv_bytes_avg) AS bytes
          FROM engine_minute
          WHERE bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
            AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
            AND pool = $pool
          GROUP BY engine)
)
SELECT loads, reloads, working.bytes AS working_bytes, room.bytes AS room_bytes
FROM counted, loaded, working, room
