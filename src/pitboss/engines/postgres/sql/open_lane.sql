INSERT INTO {schema}.lanes (name) VALUES (%(name)s::text) ON CONFLICT (name) DO NOTHING
