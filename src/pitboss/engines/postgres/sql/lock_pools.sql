SELECT name, rules FROM {schema}.pools WHERE name = ANY (%(names)s::text[]) ORDER BY name FOR UPDATE
