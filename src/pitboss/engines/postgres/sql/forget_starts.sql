-- Starts that no window of their queue looks back to.
DELETE FROM {schema}.starts WHERE ctid = ANY (ARRAY(
    SELECT old.place FROM {schema}.queues AS q, LATERAL (
        SELECT ctid AS place FROM {schema}.starts
        WHERE queue = q.name AND at <= coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
            - (SELECT max(span) FROM unnest(q.rate_spans) AS w (span))
        LIMIT %(limit)s::bigint
    ) AS old
    WHERE q.rate_spans IS NOT NULL
))
