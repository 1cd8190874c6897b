-- Write members and their new uses, and forget uses that no window looks back to. With them: counts that changed, and a
-- ring for these queues and those of these pools.
WITH found AS MATERIALIZED (
    SELECT r.place, new.* FROM unnest(
        %(members)s::bigint[], %(ranks)s::bigint[], %(last_uses)s::bigint[], %(available)s::bigint[],
        %(blacklisted)s::bigint[], %(in_use)s::bigint[], %(stages)s::text[], %(records)s::text[]
    ) AS new (member, rank, last_used_at, available_at, blacklisted_until, in_use, stage, record), LATERAL (
        SELECT ctid AS place FROM {schema}.resources WHERE number = new.member
    ) AS r
), written AS (
    UPDATE {schema}.resources AS r SET rank = f.rank, last_used_at = f.last_used_at, available_at = f.available_at,
        blacklisted_until = f.blacklisted_until, in_use = f.in_use, stage = f.stage, record = f.record
    FROM found AS f WHERE r.ctid = f.place
), fresh AS MATERIALIZED (
    SELECT * FROM unnest(%(used)s::bigint[], %(uses)s::bigint[], %(ats)s::bigint[], %(kept)s::bigint[])
        AS use (resource, number, at, kept)
), remembered AS (
    INSERT INTO {schema}.uses (resource, number, at)
    SELECT resource, number, at FROM fresh WHERE kept > 0
), forgotten AS (
    DELETE FROM {schema}.uses AS u USING (
        SELECT old.place FROM (SELECT resource, max(number - kept) AS last FROM fresh GROUP BY resource) AS f, LATERAL (
            SELECT ctid AS place FROM {schema}.uses WHERE resource = f.resource AND number <= f.last
        ) AS old
    ) AS old WHERE u.ctid = old.place
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch, handler, run, at)
    SELECT queue, state, n, batch, handler, run, CASE WHEN handler IS NOT NULL THEN %(counted_at)s::bigint END
    FROM unnest(
        %(queues)s::text[], %(states)s::text[], %(numbers)s::bigint[], %(batches)s::text[], %(handlers)s::text[],
        %(runs)s::text[]
    ) AS changed (queue, state, n, batch, handler, run)
)
SELECT pg_notify(%(channel)s::text, CASE WHEN length(names) < 7000 THEN names ELSE '*' END)
FROM (
    SELECT string_agg(name, ',') AS names FROM (
        SELECT unnest(%(ring)s::text[]) UNION
        SELECT queue FROM {schema}.handlers WHERE resources = ANY (%(pools)s::text[])
    ) AS rung (name)
) AS all_of_them WHERE names IS NOT NULL
