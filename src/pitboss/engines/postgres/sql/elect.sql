UPDATE {schema}.leader SET term = term + 1, session = %(session)s::bigint WHERE one
RETURNING term, (SELECT host FROM {schema}.sessions WHERE number = %(session)s::bigint)
