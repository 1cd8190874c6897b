SELECT l.name, max_running, count(b.id) FILTER (WHERE b.status IN ('running', 'pausing', 'cancelling')),
    count(b.id) FILTER (WHERE b.status = 'queued')
FROM {schema}.lanes AS l LEFT JOIN {schema}.batches AS b
    ON b.lane = l.name AND b.status NOT IN ('cancelled', 'done', 'done_with_errors')
WHERE %(name)s::text IS NULL OR l.name = %(name)s::text
GROUP BY l.name, max_running ORDER BY l.name
