INSERT INTO {schema}.handlers AS h (name, queue, policy, schema)
SELECT * FROM unnest(%(names)s::text[], %(queues)s::text[], %(policies)s::text[], %(schemas)s::text[])
ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, policy = excluded.policy, schema = excluded.schema
