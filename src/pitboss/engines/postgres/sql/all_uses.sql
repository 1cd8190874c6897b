SELECT u.resource, u.number, u.at FROM unnest(%(members)s::bigint[]) AS m (number), LATERAL (
    SELECT resource, number, at FROM {schema}.uses WHERE resource = m.number
) AS u
