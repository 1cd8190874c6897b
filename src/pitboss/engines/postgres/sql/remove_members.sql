WITH forgotten AS (
    DELETE FROM {schema}.uses WHERE resource = ANY (%(members)s::bigint[])
)
DELETE FROM {schema}.resources WHERE number = ANY (%(members)s::bigint[])
