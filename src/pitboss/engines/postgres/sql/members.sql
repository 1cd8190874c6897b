SELECT number, pool, name, stage, rank, last_used_at, available_at, in_use, enabled, labels, settings, record
FROM {schema}.resources
WHERE pool = %(pool)s::text AND (%(names)s::text[] IS NULL OR name = ANY (%(names)s::text[])) ORDER BY name
