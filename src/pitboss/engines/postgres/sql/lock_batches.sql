SELECT id, lane, status, unfinished, rank, started_at, reason, on_complete
FROM {schema}.batches WHERE id = ANY (%(ids)s::text[]) ORDER BY id FOR UPDATE
