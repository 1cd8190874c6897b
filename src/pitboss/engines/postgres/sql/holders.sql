SELECT key, task FROM {schema}.uniques WHERE key = ANY (%(keys)s::text[])
