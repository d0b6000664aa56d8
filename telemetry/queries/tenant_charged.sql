-- Seconds of the matrix that concern one tenant, over the buckets that start in [start, end): on the side
-- 'behind' what it waited for, by holder; on the side 'held' what others waited for it. The largest
-- `most` of a side; the rest of it is one row of kind 'rest', `folded` of them: each side adds up.
WITH cells AS (
    SELECT victim, reason, holder_kind, holder, sum(charged_s) AS charged_s
    FROM interference_minute
    WHERE pool = $pool AND charged_s > 0.0
      AND bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
      AND (victim = $tenant OR (holder_kind = 'tenant' AND holder = $tenant))
    GROUP BY victim, reason, holder_kind, holder
),
sided AS (
    SELECT 'behind' AS side, reason, charged_s,
           CASE WHEN holder_kind = 'tenant' AND holder = $tenant THEN 'self' ELSE holder_kind END
               AS kind,
           CASE WHEN holder_kind = 'tenant' AND holder <> $tenant THEN holder ELSE '' END AS name
    FROM cells WHERE victim = $tenant
    UNION ALL
    SELECT 'held', reason, charged_s, 'tenant', victim
    FROM cells WHERE victim <> $tenant
),
summed AS (
    SELECT side, kind, name,
           coalesce(sum(charged_s) FILTER (WHERE reason = 'slot'), 0.0) AS slot_s,
           coalesce(sum(charged_s) FILTER (WHERE reason = 'budget'), 0.0) AS budget_s,
           coalesce(sum(charged_s) FILTER (WHERE reason = 'kv'), 0.0) AS kv_s,
           coalesce(sum(charged_s) FILTER (WHERE reason = 'adapter'), 0.0) AS adapter_s,
           coalesce(sum(charged_s) FILTER (WHERE reason = 'stall'), 0.0) AS stall_s,
           coalesce(sum(charged_s) FILTER (WHERE reason <> 'stall'), 0.0) AS charged_s
    FROM sided
    GROUP BY side, kind, name
),
ranked AS (
    SELECT *, row_number() OVER (PARTITION BY side ORDER BY charged_s DESC, stall_s DESC, kind, name)
               AS place
    FROM summed
)
SELECT side,
       CASE WHEN place <= $most THEN kind ELSE 'rest' END AS kind,
       CASE WHEN place <= $most THEN name ELSE '' END AS name,
       count(*) AS folded,
       sum(slot_s) AS slot_s, sum(budget_s) AS budget_s, sum(kv_s) AS kv_s,
       sum(adapter_s) AS adapter_s, sum(stall_s) AS stall_s, sum(charged_s) AS charged_s
FROM ranked
GROUP BY ALL
ORDER BY side, min(place)
