-- Keys that nobody else is binding at this moment. Nobody waits here, so the order does not matter.
SELECT pool, key FROM unnest(%(pools)s::text[], %(keys)s::text[]) AS w (pool, key)
WHERE pg_try_advisory_xact_lock(hashtextextended(%(channel)s::text || ' ' || pool || ' ' || key, 0))
