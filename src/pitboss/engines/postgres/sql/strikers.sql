SELECT w.pool, w.destination, s.name, s.at
FROM unnest(%(pools)s::text[], %(destinations)s::text[]) AS w (pool, destination), LATERAL (
    SELECT name, at FROM {schema}.strikes WHERE pool = w.pool AND destination = w.destination
) AS s
