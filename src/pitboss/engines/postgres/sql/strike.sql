INSERT INTO {schema}.strikes (pool, destination, name, at)
SELECT pool, destination, name, %(now)s::bigint
FROM unnest(%(pools)s::text[], %(destinations)s::text[], %(names)s::text[]) AS new (pool, destination, name)
ON CONFLICT (pool, destination, name) DO UPDATE SET at = excluded.at
