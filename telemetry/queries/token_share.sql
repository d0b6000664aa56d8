-- Each bucket's first n tenants by service, and their share of the pools' service in it, for the
-- buckets that start in [start, end). The first n are picked without putting all in order.
-- The bounds stand where the rows are read: so whole runs of rows outside are not even looked at.
WITH served AS (
    SELECT bucket_start, bucket_s, tenant, sum(service) AS service
    FROM tenant_minute
    WHERE bucket_start >= make_timestamp(CAST(round($start * 1e6) AS BIGINT))
      AND bucket_start < make_timestamp(CAST(round($end * 1e6) AS BIGINT))
    GROUP BY bucket_start, bucket_s, tenant
),
firsts AS (
    SELECT bucket_start, bucket_s, sum(service) AS whole,
           min_by(struct_pack(tenant, service),
                  struct_pack(last := service IS NULL, less := -service, tenant),
                  least(CAST($n AS BIGINT), 999999)) AS first
    FROM served
    GROUP BY bucket_start, bucket_s
)
SELECT bucket_start, bucket_s, one.tenant AS tenant, one.service AS service,
       one.service / nullif(whole, 0) AS share
FROM (SELECT bucket_start, bucket_s, whole, unnest(first) AS one FROM firsts)
ORDER BY bucket_start, bucket_s, service DESC NULLS LAST, tenant
