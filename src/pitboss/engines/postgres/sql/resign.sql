UPDATE {schema}.leader SET session = NULL WHERE one AND session = %(session)s::bigint
