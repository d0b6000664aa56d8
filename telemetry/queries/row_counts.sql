-- Rows of every table, in the whole store.
SELECT 'tenant_minute' AS name, count(*) AS rows FROM tenant_minute
UNION ALL
SELECT 'interference_minute' AS name, count(*) AS rows FROM interference_minute
UNION ALL
SELECT 'adapter_minute' AS name, count(*) AS rows FROM adapter_minute
UNION ALL
SELECT 'engine_minute' AS name, count(*) AS rows FROM engine_minute
UNION ALL
SELECT 'request' AS name, count(*) AS rows FROM request
UNION ALL
SELECT 'event' AS name, count(*) AS rows FROM event
UNION ALL
SELECT 'policy' AS name, count(*) AS rows FROM policy
UNION ALL
SELECT 'step_sample' AS name, count(*) AS rows FROM step_sample
UNION ALL
SELECT 'engine_run' AS name, count(*) AS rows FROM engine_run
UNION ALL
SELECT 'adapter' AS name, count(*) AS rows FROM adapter
UNION ALL
SELECT 'foreign_metric' AS name, count(*) AS rows FROM foreign_metric
UNION ALL
SELECT 'series_state' AS name, count(*) AS rows FROM series_state
