UPDATE {schema}.pools SET rules = %(rules)s::text WHERE name = %(name)s::text
