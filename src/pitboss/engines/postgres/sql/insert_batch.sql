INSERT INTO {schema}.batches (id, rank, unfinished, created_at, status, lane, name, data, by, on_complete)
VALUES (%(id)s::text, %(rank)s::bigint, 0, %(now)s::bigint, %(status)s::text, %(lane)s::text, %(name)s::text,
    %(data)s::text, %(by)s::text, %(on_complete)s::text)
ON CONFLICT (id) DO NOTHING
RETURNING id
