INSERT INTO {schema}.lanes (name, max_running) VALUES (%(name)s::text, %(max_running)s::bigint)
ON CONFLICT (name) DO UPDATE SET max_running = excluded.max_running
