-- Versions of one pool's policy that came into force in [start, end), the newest first. `one`: only those
-- that changed the policy's name or what is in force for `tenant`: `held` and `was` are its values
-- (JSON) with it and with the version before in its run. `said` is what the version's event says.
-- At most `most`; `matching` says of how many.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
),
told AS (
    SELECT engine, run_id, version, "at", policy, previous, who, why,
           CAST(json_extract(
               CASE WHEN $one AND json_valid(parameters) THEN parameters END,
               '/' || replace(replace($tenant, '~', '~0'), '/', '~1')
           ) AS VARCHAR) AS held
    FROM policy, bounds
    WHERE pool = $pool AND "at" >= low AND "at" < high
),
beside AS (
    SELECT *, lag(held) OVER (PARTITION BY engine, run_id ORDER BY version) AS was
    FROM told
),
kept AS (
    SELECT *, count(*) OVER () AS matching
    FROM beside
    WHERE NOT $one OR version = 1 OR held IS DISTINCT FROM was
          OR previous IS DISTINCT FROM policy
    ORDER BY "at" DESC, version DESC, engine, run_id
    LIMIT $most
),
events AS (
    SELECT engine, run_id, "at", detail
    FROM event, bounds
    WHERE kind = 'policy' AND pool = $pool AND "at" >= low AND "at" < high
)
SELECT k.engine, k.run_id, k.version, epoch(k."at") AS at_s, k.policy, k.previous, k.who, k.why,
       k.held, k.was,
       (SELECT min(e.detail) FROM events AS e
        WHERE e.engine = k.engine AND e.run_id = k.run_id
          AND abs(epoch(e."at") - epoch(k."at")) <= 0.001) AS said,
       k.matching
FROM kept AS k
ORDER BY k."at" DESC, k.version DESC, k.engine, k.run_id
