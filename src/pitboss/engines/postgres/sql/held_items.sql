-- Items of batches that wait for a handler which is registered: one of these, or else one that a live session knows.
SELECT t.* FROM {schema}.handlers AS h, LATERAL (
    SELECT id, batch FROM {schema}.tasks
    WHERE state = 'held' AND handler = h.name AND reason = 'handler' AND batch IS NOT NULL
    ORDER BY id LIMIT %(limit)s::bigint
) AS t
WHERE h.name = ANY (%(handlers)s::text[]) OR (%(handlers)s::text[] IS NULL AND EXISTS (
    SELECT FROM {schema}.sessions AS s WHERE NOT s.ended AND h.name = ANY (s.handlers)
        AND s.expires_at > coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)))
ORDER BY t.id LIMIT %(limit)s
