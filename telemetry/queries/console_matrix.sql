-- Cells of the matrix whose bucket starts in [start, end), in order of time, as a console takes them in.
SELECT epoch(bucket_start) AS bucket_start, bucket_s, engine, run_id, pool, victim, reason,
       holder_kind, holder, charged_s
FROM interference_minute
WHERE bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
  AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
ORDER BY interference_minute.bucket_start, engine, run_id, pool, victim, reason, holder_kind, holder
