-- Charged seconds of one pool's matrix, for the buckets that start in [start, end): its cells, numbered
-- from 0, and every charge under its cell's number, in no order. A charge without a number stays
-- without one. Names come once a cell: a busy hour has half a million charges.
WITH bounds AS (
    SELECT make_timestamp(CAST(round($start * 1e6) AS BIGINT)) AS low,
           make_timestamp(CAST(round($end * 1e6) AS BIGINT)) AS high
), charges AS MATERIALIZED (
    SELECT epoch(bucket_start) AS bucket_start, bucket_s, victim, reason, holder_kind, holder,
           charged_s
    FROM interference_minute, bounds
    WHERE pool = $pool AND bucket_start >= low AND bucket_start < high
), cells AS MATERIALIZED (
    SELECT victim, reason, holder_kind, holder,
           row_number() OVER (ORDER BY victim, reason, holder_kind, holder) - 1 AS cell
    FROM (SELECT DISTINCT victim, reason, holder_kind, holder FROM charges)
)
SELECT cell, victim, reason, holder_kind, holder, NULL AS bucket_start, NULL AS bucket_s,
       NULL AS charged_s
FROM cells
UNION ALL
SELECT cell, NULL, NULL, NULL, NULL, bucket_start, bucket_s, charged_s
FROM charges JOIN cells USING (victim, reason, holder_kind, holder)
