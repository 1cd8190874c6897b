UPDATE {schema}.batches AS b SET rank = r.rank
FROM unnest(%(ids)s::text[], %(ranks)s::bigint[]) AS r (id, rank) WHERE b.id = r.id
