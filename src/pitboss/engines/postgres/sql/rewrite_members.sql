WITH found AS MATERIALIZED (
    SELECT r.place, new.* FROM unnest(
        %(members)s::bigint[], %(ranks)s::bigint[], %(last_uses)s::bigint[], %(available)s::bigint[],
        %(blacklisted)s::bigint[], %(in_use)s::bigint[], %(stages)s::text[], %(records)s::text[],
        %(enabled)s::boolean[], %(labels)s::text[], %(settings)s::text[]
    ) AS new (
        member, rank, last_used_at, available_at, blacklisted_until, in_use, stage, record, enabled, labels, settings
    ), LATERAL (
        SELECT ctid AS place FROM {schema}.resources WHERE number = new.member
    ) AS r
)
UPDATE {schema}.resources AS r SET rank = f.rank, last_used_at = f.last_used_at, available_at = f.available_at,
    blacklisted_until = f.blacklisted_until, in_use = f.in_use, stage = f.stage, record = f.record,
    enabled = f.enabled, labels = f.labels::text[], settings = f.settings
FROM found AS f WHERE r.ctid = f.place
