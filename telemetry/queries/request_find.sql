-- Every request of that id: in which run, whose, when it arrived. Ids are unique in one engine.
SELECT engine, run_id, pool, tenant, arrived, outcome
FROM request
WHERE request_id = $request_id
ORDER BY arrived, engine, run_id, pool
