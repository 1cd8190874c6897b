-- name: session_open
INSERT INTO {schema}.sessions (host, boot_id, pid, kind, handlers, ttl, opened_at, expires_at)
SELECT %(host)s::text, %(boot_id)s::text, %(pid)s::bigint, %(kind)s::text, %(handlers)s::text[], %(ttl)s::bigint,
    now, now + %(ttl)s::bigint
FROM (SELECT {now} AS now) AS clock
RETURNING number, opened_at, expires_at

-- name: session_renew
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), renewed AS (
    UPDATE {schema}.sessions
    SET expires_at = now + ttl, snapshot = coalesce(%(snapshot)s::text, snapshot)
    FROM clock WHERE number = %(session)s::bigint AND NOT ended AND expires_at > now
    RETURNING expires_at
)
SELECT expires_at, (SELECT version FROM {schema}.desired WHERE one),
    ARRAY(
        SELECT id || ' ' || claim FROM {schema}.tasks
        WHERE state = 'running' AND cancel_asked AND session = %(session)s::bigint ORDER BY id
    )
FROM renewed

-- name: session_end
UPDATE {schema}.sessions
SET ended = true, expires_at = least(expires_at, {now})
WHERE number = %(session)s::bigint AND NOT ended

-- name: session_lock
-- Waits for a renewal under way: a leader that it keeps alive must not lose the lead.
SELECT true FROM {schema}.sessions WHERE number = %(session)s::bigint FOR SHARE

-- name: session_list
SELECT number, host, boot_id, pid, kind, handlers, ttl, opened_at, expires_at, ended, snapshot
FROM {schema}.sessions
WHERE expires_at + 3600000000 > {now}
ORDER BY number

-- name: session_forget
-- A session that still holds tasks stays until they are reclaimed. Claims with a time limit of their own do not need it.
DELETE FROM {schema}.sessions AS s
WHERE expires_at + 3600000000 <= {now} AND (
    SELECT true FROM {schema}.tasks
    WHERE state = 'running' AND session = s.number AND claim_expires_at IS NULL LIMIT 1
) IS NULL

-- name: leader_get
-- The leader (NULL if there is none), and whether the session that asks is alive, both at the same moment.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
)
SELECT l.term, s.number, s.host, EXISTS (
        SELECT FROM {schema}.sessions AS me
        WHERE me.number = %(session)s::bigint AND NOT me.ended AND me.expires_at > now
    )
FROM clock CROSS JOIN {schema}.leader AS l
LEFT JOIN {schema}.sessions AS s ON s.number = l.session AND NOT s.ended AND s.expires_at > now
WHERE l.one

-- name: leader_lock
SELECT session FROM {schema}.leader WHERE one FOR UPDATE

-- name: leader_elect
UPDATE {schema}.leader SET term = term + 1, session = %(session)s::bigint WHERE one
RETURNING term, (SELECT host FROM {schema}.sessions WHERE number = %(session)s::bigint)

-- name: leader_resign
UPDATE {schema}.leader SET session = NULL WHERE one AND session = %(session)s::bigint

-- name: leader_lock_term
-- The leader's term, which cannot change until this transaction is over. A row that changed while this waited for it no
-- longer fits the session that was read with it, and is left out: that term was over anyway.
SELECT l.term FROM {schema}.leader AS l, {schema}.sessions AS s
WHERE l.one AND s.number = l.session AND NOT s.ended
    AND s.expires_at > {now}
FOR SHARE OF l
