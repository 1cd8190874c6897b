SELECT w.pool, w.destination, s.name
FROM unnest(%(pools)s::text[], %(destinations)s::text[]) AS w (pool, destination), LATERAL (
    SELECT name FROM {schema}.strikes
    WHERE pool = w.pool AND destination = w.destination
        AND at > coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) - %(kept)s::bigint
) AS s
