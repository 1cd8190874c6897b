-- These, or the first ones of these statuses as they are shown: who has a slot, the queued, the paused, the ended.
SELECT id, name, lane, status, data, by, rank, created_at, started_at, finished_at, reason, on_complete
FROM {schema}.batches
WHERE (%(ids)s::text[] IS NULL OR id = ANY (%(ids)s::text[]))
    AND (%(statuses)s::text[] IS NULL OR status = ANY (%(statuses)s::text[]))
ORDER BY CASE WHEN status IN ('running', 'pausing', 'cancelling') THEN 0 WHEN status = 'queued' THEN 1
    WHEN status = 'paused' THEN 2 ELSE 3 END,
    CASE WHEN finished_at IS NULL THEN lane END, CASE WHEN finished_at IS NULL THEN rank END,
    CASE WHEN finished_at IS NULL THEN id END, finished_at DESC, id DESC
LIMIT %(limit)s::bigint
