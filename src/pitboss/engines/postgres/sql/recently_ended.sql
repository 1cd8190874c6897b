SELECT b.id, (
    SELECT count(*) FROM {schema}.tasks
    WHERE batch = b.id AND state IN ('completed', 'failed', 'cancelled') AND finished_at >= b.since
) FROM unnest(%(ids)s::text[], %(since)s::bigint[]) AS b (id, since)
