-- Whom the asked tasks meet: the same id, else the task that has their key now.
SELECT asked.place, met.id, met.state, met.reason
FROM unnest(%(ids)s::uuid[], %(keys)s::text[]) WITH ORDINALITY AS asked (id, key, place)
CROSS JOIN LATERAL (
    SELECT 0 AS rank, id, state, reason FROM {schema}.tasks WHERE id = asked.id
    UNION ALL
    SELECT 1, holder.id, holder.state, holder.reason
    FROM {schema}.uniques, LATERAL (SELECT id, state, reason FROM {schema}.tasks WHERE id = task) AS holder
    WHERE key = asked.key
        AND CASE WHEN until IS NULL THEN holder.state NOT IN ('completed', 'failed', 'cancelled')
            ELSE until > coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) END
    ORDER BY rank LIMIT 1
) AS met
