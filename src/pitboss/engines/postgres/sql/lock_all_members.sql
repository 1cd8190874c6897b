SELECT number, pool, name, stage, rank, last_used_at, available_at, in_use, enabled, labels, settings, record
FROM {schema}.resources WHERE pool = %(pool)s::text ORDER BY number FOR UPDATE
