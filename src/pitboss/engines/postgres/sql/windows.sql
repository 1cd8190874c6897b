-- For each queue with a rate: how many may start now, when one more may start, and whether somebody waits for it.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
)
SELECT q.name, now, (
    SELECT min(allowed - (
        SELECT count(*) FROM (
            SELECT FROM {schema}.starts WHERE queue = q.name AND at > now - span LIMIT allowed
        ) AS started
    )) FROM unnest(q.rate_counts, q.rate_spans) AS w (allowed, span)
) AS room, (
    SELECT max(oldest.at + span) FROM unnest(q.rate_counts, q.rate_spans) AS w (allowed, span), LATERAL (
        SELECT at FROM {schema}.starts WHERE queue = q.name ORDER BY at DESC OFFSET allowed - 1 LIMIT 1
    ) AS oldest
) AS opens_at, EXISTS (
    SELECT FROM {schema}.tasks WHERE state = 'pending' AND queue = q.name
) AS wanted
FROM clock, {schema}.queues AS q
WHERE NOT q.paused AND q.rate_counts IS NOT NULL
    AND (%(queues)s::text[] IS NULL OR q.name = ANY (%(queues)s::text[]))
