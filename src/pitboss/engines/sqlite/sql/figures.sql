-- name: flow_add_put
-- What happened in one transaction, one statement for each kind: most transactions have one.
INSERT INTO pitboss_flows (span, at, queue, handler, put)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (span, at, queue, handler) DO UPDATE SET put = put + excluded.put

-- name: flow_add_completed
INSERT INTO pitboss_flows (span, at, queue, handler, completed)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (span, at, queue, handler) DO UPDATE SET completed = completed + excluded.completed

-- name: flow_add_failed
INSERT INTO pitboss_flows (span, at, queue, handler, failed)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (span, at, queue, handler) DO UPDATE SET failed = failed + excluded.failed

-- name: flow_add_cancelled
INSERT INTO pitboss_flows (span, at, queue, handler, cancelled)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (span, at, queue, handler) DO UPDATE SET cancelled = cancelled + excluded.cancelled

-- name: flow_add_retried
INSERT INTO pitboss_flows (span, at, queue, handler, retried)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (span, at, queue, handler) DO UPDATE SET retried = retried + excluded.retried

-- name: flow_add_lost
INSERT INTO pitboss_flows (span, at, queue, handler, lost)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (span, at, queue, handler) DO UPDATE SET lost = lost + excluded.lost

-- name: flow_add_revived
INSERT INTO pitboss_flows (span, at, queue, handler, revived)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (span, at, queue, handler) DO UPDATE SET revived = revived + excluded.revived

-- name: flow_add
INSERT INTO pitboss_flows (span, at, queue, handler, put, completed, failed, cancelled, retried, lost, revived)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (span, at, queue, handler) DO UPDATE SET
    put = put + excluded.put,
    completed = completed + excluded.completed,
    failed = failed + excluded.failed,
    cancelled = cancelled + excluded.cancelled,
    retried = retried + excluded.retried,
    lost = lost + excluded.lost,
    revived = revived + excluded.revived

-- name: flow_list
-- ?1 is the length of the buckets that are answered, ?4 and ?5 are a queue and a handler, or NULL, and ?6 says whether
-- handlers are told apart.
SELECT
    at - at % ?1 AS began,
    queue,
    CASE ?6 WHEN 1 THEN handler ELSE '' END AS told,
    sum(put),
    sum(completed),
    sum(failed),
    sum(cancelled),
    sum(retried),
    sum(lost),
    sum(revived)
FROM pitboss_flows
WHERE
    span IN (10000000, 60000000, 3600000000)
    AND at >= ?2
    AND at < ?3
    AND (?4 IS NULL OR queue = ?4)
    AND (?5 IS NULL OR handler = ?5)
GROUP BY began, queue, told
ORDER BY began, queue, told

-- name: total_places
-- The totals are rows of a bucket without an end. These queues and handlers have their own.
SELECT queue, handler FROM pitboss_flows WHERE span = 0 AND at = 0

-- name: total_list
SELECT at, queue, handler, put, completed, failed, cancelled, retried, lost, revived
FROM pitboss_flows
WHERE span = 0 AND at = 0
ORDER BY queue, handler

-- name: total_measured
-- The total of all samples.
SELECT body FROM pitboss_samples WHERE span = 0 AND at = 0 AND session = 0

-- name: flow_oldest
SELECT min(at) FROM pitboss_flows WHERE span = ?

-- name: flow_take
DELETE FROM pitboss_flows
WHERE span = ? AND at >= ? AND at < ?
RETURNING at, queue, handler, put, completed, failed, cancelled, retried, lost, revived

-- name: sample_add
INSERT INTO pitboss_samples (span, at, session, body) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: sample_write
INSERT OR REPLACE INTO pitboss_samples (span, at, session, body) VALUES (?, ?, ?, ?)

-- name: sample_remove
DELETE FROM pitboss_samples WHERE span = ? AND at = ? AND session = ?

-- name: sample_list
SELECT body
FROM pitboss_samples
WHERE span = ? AND at >= ? AND at < ?
ORDER BY at, session
LIMIT ?

-- name: sample_list_newest
SELECT body
FROM pitboss_samples
WHERE span = ? AND at >= ? AND at < ?
ORDER BY at DESC, session DESC
LIMIT ?
