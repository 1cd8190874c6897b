INSERT INTO {schema}.bindings (pool, key, name, until)
SELECT * FROM unnest(%(pools)s::text[], %(keys)s::text[], %(names)s::text[], %(untils)s::bigint[])
ON CONFLICT (pool, key) DO UPDATE SET name = excluded.name, until = excluded.until
