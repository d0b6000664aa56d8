-- What happened to one pool in [start, end), the newest first: its events, those of the store itself, and
-- versions of the policy that no event tells of. `which`: news (no single preemption, eviction or
-- cost), changes, alerts, faults, pressure (preemptions, evictions, failed loads) or every.
-- At most `most` of them; `matching` says of how many. States that only a restart reads are left out.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
),
told AS (
    SELECT "at", kind, tenant, adapter, request_id, cause_tenant, detail, value, engine, run_id,
           event_id
    FROM event, bounds
    WHERE "at" >= low AND "at" < high
      AND (pool = $pool OR pool = 'store')
      AND kind NOT IN ('incident_state', 'silence_state')
),
changed AS (
    SELECT p."at", 'policy' AS kind, CAST(NULL AS VARCHAR) AS tenant,
           CAST(NULL AS VARCHAR) AS adapter, CAST(NULL AS VARCHAR) AS request_id,
           CAST(NULL AS VARCHAR) AS cause_tenant,
           concat(coalesce(p.previous || ' -> ', ''), p.policy, coalesce(' by ' || p.who, ''),
                  coalesce(': ' || p.why, '')) AS detail,
           CAST(NULL AS DOUBLE) AS value, p.engine, p.run_id,
           'policy/' || p.version AS event_id
    FROM policy AS p, bounds
    WHERE p.pool = $pool AND p.version > 1 AND p."at" >= low AND p."at" < high
      AND NOT EXISTS (
          SELECT 1 FROM told AS t
          WHERE t.kind = 'policy' AND abs(epoch(t."at") - epoch(p."at")) <= 1.0
      )
)
SELECT epoch("at") AS at_s, kind, tenant, adapter, request_id, cause_tenant, detail, value,
       engine, run_id, event_id, count(*) OVER () AS matching
FROM (SELECT * FROM told UNION ALL SELECT * FROM changed)
WHERE CASE $which
          WHEN 'changes' THEN kind IN ('policy', 'admin', 'start', 'stop', 'mark', 'forget')
          WHEN 'alerts' THEN kind IN ('incident', 'incident_act')
          WHEN 'faults' THEN kind IN ('fault', 'lost', 'quarantine', 'clock', 'load')
          WHEN 'pressure' THEN kind IN ('preempt', 'evict', 'load')
          WHEN 'news' THEN kind NOT IN ('preempt', 'evict', 'costs', 'retention')
          ELSE true
      END
ORDER BY "at" DESC, engine, run_id, event_id
LIMIT $most
