-- More or fewer unfinished items, of batches that are locked; and what tells whether they end or are paused.
UPDATE {schema}.batches AS b SET unfinished = b.unfinished + c.change
FROM unnest(%(ids)s::text[], %(changes)s::bigint[]) AS c (id, change) WHERE b.id = c.id
RETURNING b.id, b.unfinished
