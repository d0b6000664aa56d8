-- What is in force for each tenant of one pool at `end`, beside what the run was started with. Of the run
-- that was started last in [start, end]; looked back over its last 10 versions. `since_*`: the version
-- from which on the values are as they are (absent: since before `oldest`). Those that differ from the
-- start come first; at most `most`, `matching` says of how many.
WITH run AS (
    SELECT engine, run_id, started, config
    FROM engine_run
    WHERE pool = $pool
      AND started >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND started <= make_timestamp(CAST(round($end * 1e6) AS BIGINT))
    ORDER BY started DESC, engine, run_id
    LIMIT 1
),
versions AS (
    SELECT p.version, p."at", p.who, p.why, p.parameters
    FROM policy AS p JOIN run AS r ON r.engine = p.engine AND r.run_id = p.run_id
    WHERE p.pool = $pool AND p."at" <= make_timestamp(CAST(round($end * 1e6) AS BIGINT))
    ORDER BY p.version DESC
    LIMIT 10
),
told AS (
    SELECT version, e.key AS tenant, e.value AS held
    FROM (
        SELECT version,
               unnest(map_entries(from_json(
                   CASE WHEN json_valid(parameters) THEN parameters END,
                   '"MAP(VARCHAR, STRUCT(weight DOUBLE, tier BIGINT, rpm BIGINT, tpm BIGINT, concurrency BIGINT))"'
               ))) AS e
        FROM versions
    )
),
moved AS (
    SELECT *,
           lag(held) OVER (PARTITION BY tenant ORDER BY version) AS was,
           lag(version) OVER (PARTITION BY tenant ORDER BY version) IS NOT NULL AS had,
           version = (SELECT max(version) FROM versions) AS newest
    FROM told
),
since AS (
    SELECT tenant, max(version) AS since_version
    FROM moved
    WHERE had AND was IS DISTINCT FROM held
    GROUP BY tenant
),
begun AS (
    SELECT e.name AS tenant, e AS began
    FROM (
        SELECT unnest(from_json(
                   json_extract(CASE WHEN json_valid(config) THEN config END, '/tenants'),
                   '[{"name": "VARCHAR", "weight": "DOUBLE", "tier": "BIGINT", "rpm": "BIGINT", "tpm": "BIGINT", "concurrency": "BIGINT", "pool": "VARCHAR"}]'
               )) AS e
        FROM run
    )
    WHERE e.name IS NOT NULL
),
now AS (
    SELECT m.tenant,
           m.held.weight AS weight, m.held.tier AS tier, m.held.rpm AS rpm, m.held.tpm AS tpm,
           m.held.concurrency AS concurrency,
           b.tenant IS NOT NULL AS at_start,
           b.began.weight AS start_weight, b.began.tier AS start_tier, b.began.rpm AS start_rpm,
           b.began.tpm AS start_tpm, b.began.concurrency AS start_concurrency,
           b.began.pool AS own_pool,
           s.since_version
    FROM moved AS m
    LEFT JOIN begun AS b ON b.tenant = m.tenant
    LEFT JOIN since AS s ON s.tenant = m.tenant
    WHERE m.newest
)
SELECT n.*, (SELECT min(version) FROM versions) AS oldest, epoch(v."at") AS since_at, v.who, v.why,
       NOT n.at_start
           OR n.weight IS DISTINCT FROM n.start_weight
           OR coalesce(n.tier, 0) <> coalesce(n.start_tier, 0)
           OR n.rpm IS DISTINCT FROM n.start_rpm
           OR n.tpm IS DISTINCT FROM n.start_tpm
           OR n.concurrency IS DISTINCT FROM n.start_concurrency AS differs,
       count(*) OVER () AS matching
FROM now AS n LEFT JOIN versions AS v ON v.version = n.since_version
ORDER BY differs DESC, n.since_version DESC NULLS LAST, n.tenant
LIMIT $most
