SELECT max_running FROM {schema}.lanes WHERE name = %(lane)s::text
