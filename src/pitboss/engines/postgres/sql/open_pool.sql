INSERT INTO {schema}.pools (name, rules) VALUES (%(name)s::text, %(rules)s::text) ON CONFLICT (name) DO NOTHING
