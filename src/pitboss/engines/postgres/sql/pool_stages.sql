-- In which stage members stand, as far as a shortage tells it apart, and when the next one comes back; of the ready ones,
-- whether some with these labels were not looked at, because somebody else had locked them.
SELECT w.pool, CASE
    WHEN EXISTS (SELECT FROM {schema}.resources AS r WHERE r.pool = w.pool AND stage = 'ready') THEN 'ready'
    WHEN EXISTS (SELECT FROM {schema}.resources AS r WHERE r.pool = w.pool AND stage = 'away') THEN 'away'
    WHEN EXISTS (SELECT FROM {schema}.resources AS r WHERE r.pool = w.pool AND stage = 'busy') THEN 'busy'
    WHEN EXISTS (SELECT FROM {schema}.resources AS r WHERE r.pool = w.pool) THEN 'out'
END, (
    SELECT min(available_at) FROM {schema}.resources AS r WHERE r.pool = w.pool AND stage = 'away'
), EXISTS (
    SELECT FROM {schema}.resources AS r WHERE r.pool = w.pool AND stage = 'ready' AND r.labels @> w.labels::text[]
        AND r.number <> ALL (%(seen)s::bigint[])
)
FROM unnest(%(pools)s::text[], %(labels)s::text[]) AS w (pool, labels)
