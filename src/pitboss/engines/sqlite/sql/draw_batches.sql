-- Open queues in which running batches have items that are not drawn, or that wait.
SELECT
    pitboss_batches.id AS batch,
    pitboss_batch_counts.queue AS queue,
    sum(CASE pitboss_batch_counts.state WHEN 'held' THEN pitboss_batch_counts.n ELSE 0 END) AS held,
    sum(CASE pitboss_batch_counts.state WHEN 'pending' THEN pitboss_batch_counts.n ELSE 0 END) AS pending,
    EXISTS (
        SELECT 1 FROM pitboss_handlers AS binding
        WHERE binding.queue = pitboss_batch_counts.queue AND binding.resources IS NOT NULL
    ) AS bound
FROM pitboss_batches
JOIN pitboss_batch_counts
    ON pitboss_batch_counts.batch = pitboss_batches.id AND pitboss_batch_counts.state IN ('held', 'pending')
JOIN pitboss_queues ON pitboss_queues.name = pitboss_batch_counts.queue AND pitboss_queues.paused = 0
WHERE pitboss_batches.status = 'running'
GROUP BY pitboss_batches.id, pitboss_batch_counts.queue
