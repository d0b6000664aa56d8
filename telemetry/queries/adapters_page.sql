-- Adapters of one pool over [start, end): bytes, use, loads, and how long each was on the device.
-- The $most that were loaded most often have a row each; `adapters` says how many are known in all.
-- `now_s` of `newest_s`: on the device in the newest bucket. A reload: evicted again
-- within $reload_s of the eviction before. `used_by`: tenants that asked for it, the first $names.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
),
known AS (
    SELECT adapter, min(name) AS name, max(bytes) AS bytes, max(rank) AS rank
    FROM adapter WHERE pool = $pool GROUP BY adapter
),
minutes AS (
    SELECT m.* FROM adapter_minute AS m, bounds
    WHERE pool = $pool AND bucket_start >= low AND bucket_start < high
),
heard AS (
    SELECT bucket_start, engine, run_id, observed_seconds FROM engine_minute, bounds
    WHERE pool = $pool AND bucket_start >= low AND bucket_start < high
),
newest AS (
    SELECT sum(observed_seconds) AS observed_s FROM heard
    WHERE bucket_start = (SELECT max(bucket_start) FROM heard)
),
summed AS (
    SELECT adapter,
           CAST(sum(lookups) AS BIGINT) AS lookups,
           CAST(sum(loads) AS BIGINT) AS loads,
           CAST(sum(evictions) AS BIGINT) AS evictions,
           sum(load_s) AS load_s,
           sum(resident_s) AS resident_s,
           sum(referenced_s) AS referenced_s,
           max(device_bytes) AS device_bytes,
           sum(resident_s) FILTER (WHERE bucket_start = (SELECT max(bucket_start) FROM heard))
               AS now_s,
           sum(load_s) FILTER (WHERE bucket_start = (SELECT max(bucket_start) FROM heard))
               AS loading_s
    FROM minutes GROUP BY adapter
),
moves AS (
    SELECT adapter, "at",
           lag("at") OVER (PARTITION BY engine, run_id, adapter ORDER BY "at") AS before
    FROM event, bounds
    WHERE kind = 'evict' AND pool = $pool AND adapter IS NOT NULL
      AND "at" >= make_timestamp(CAST(round(($start - $reload_s) * 1e6) AS BIGINT))
      AND "at" < high
),
again AS (
    SELECT adapter, count(*) AS reloads FROM moves, bounds
    WHERE "at" >= low AND epoch("at") - epoch(before) <= $reload_s
    GROUP BY adapter
),
asked AS (
    SELECT k.adapter, r.tenant, max(r.arrived) AS last_use, count(*) AS requests
    FROM request AS r JOIN known AS k ON r.adapter = k.name, bounds
    WHERE r.pool = $pool AND r.arrived >= low AND r.arrived < high
    GROUP BY k.adapter, r.tenant
),
places AS (
    SELECT *, row_number() OVER (PARTITION BY adapter ORDER BY requests DESC, tenant) AS place
    FROM asked
),
used AS (
    SELECT adapter, count(*) AS tenants, epoch(max(last_use)) AS last_use,
           to_json(list(tenant ORDER BY place) FILTER (WHERE place <= $names)) AS used_by
    FROM places GROUP BY adapter
)
SELECT k.adapter, k.name, k.rank, k.bytes, s.device_bytes,
       s.lookups, s.loads, s.evictions, s.load_s, s.resident_s, s.referenced_s,
       coalesce(a.reloads, 0) AS reloads, u.tenants, CAST(u.used_by AS VARCHAR) AS used_by, u.last_use,
       s.now_s, s.loading_s, n.observed_s AS newest_s,
       count(*) OVER () AS adapters
FROM known AS k
LEFT JOIN summed AS s USING (adapter)
LEFT JOIN again AS a USING (adapter)
LEFT JOIN used AS u USING (adapter), newest AS n
ORDER BY coalesce(s.loads, 0) DESC, coalesce(s.resident_s, 0) DESC, coalesce(s.lookups, 0) DESC,
         k.name, k.adapter
LIMIT CAST($most AS BIGINT)
