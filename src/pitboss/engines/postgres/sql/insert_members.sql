INSERT INTO {schema}.resources (
    pool, name, rank, last_used_at, available_at, blacklisted_until, in_use, stage, record, enabled, labels, settings
)
SELECT %(pool)s::text, name, rank, last_used_at, available_at, blacklisted_until, in_use, stage, record, enabled,
    labels::text[], settings
FROM unnest(
    %(names)s::text[], %(members)s::bigint[], %(ranks)s::bigint[], %(last_uses)s::bigint[], %(available)s::bigint[],
    %(blacklisted)s::bigint[], %(in_use)s::bigint[], %(stages)s::text[], %(records)s::text[], %(enabled)s::boolean[],
    %(labels)s::text[], %(settings)s::text[]
) AS new (
    name, member, rank, last_used_at, available_at, blacklisted_until, in_use, stage, record, enabled, labels, settings
)
