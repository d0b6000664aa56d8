-- Ids that are nearly the one asked for: longer ones with it inside, or a few letters off.
-- Letters are compared for a few only, those that share one half of it: that is where a single slip
-- leaves the other half whole. The latest two thousand are enough to guess from.
WITH candidates AS (
    SELECT request_id, arrived, tenant
    FROM request
    WHERE $request_id <> ''
      AND (contains(request_id, $request_id)
           OR starts_with(request_id, left($request_id, (length($request_id) + 1) // 2))
           OR ends_with(request_id, right($request_id, (length($request_id) + 1) // 2)))
    ORDER BY arrived DESC
    LIMIT 2000
),
near AS (
    SELECT request_id, arrived, tenant,
           CASE WHEN contains(request_id, $request_id) THEN 0
                ELSE levenshtein(request_id, $request_id) END AS letters_off
    FROM candidates
)
SELECT request_id, arrived, tenant
FROM near
WHERE letters_off <= 3
ORDER BY letters_off, arrived DESC, request_id
LIMIT 5
