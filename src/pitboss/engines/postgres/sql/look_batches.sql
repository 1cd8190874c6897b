SELECT id, lane, status, unfinished FROM {schema}.batches WHERE id = ANY (%(ids)s::text[])
