-- These destinations have answered, or nobody remembers any more that they had not.
DELETE FROM {schema}.strikes WHERE ctid = ANY (ARRAY(
    SELECT s.place FROM unnest(%(pools)s::text[], %(destinations)s::text[]) AS w (pool, destination), LATERAL (
        SELECT ctid AS place, name FROM {schema}.strikes WHERE pool = w.pool AND destination = w.destination
    ) AS s ORDER BY w.pool, w.destination, s.name
))
