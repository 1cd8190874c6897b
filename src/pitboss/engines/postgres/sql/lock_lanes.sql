SELECT name FROM {schema}.lanes WHERE name = ANY (%(names)s::text[]) ORDER BY name FOR UPDATE
