SELECT wanted.member, wanted.use, (
    SELECT at FROM {schema}.uses WHERE resource = wanted.member AND number = wanted.use
) FROM unnest(%(members)s::bigint[], %(numbers)s::bigint[]) AS wanted (member, use)
