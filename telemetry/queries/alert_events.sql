-- What incidents and silences are rebuilt from: their states and what people did, of [start, end).
SELECT epoch("at") AS at_s, kind, event_id, pool, detail
FROM event
WHERE (kind IN ('incident_act', 'silence_state') OR ($states AND kind = 'incident_state'))
  AND "at" >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
  AND "at" < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
  AND detail IS NOT NULL
ORDER BY "at", event_id
