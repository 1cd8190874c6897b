-- Among tasks that would be given next: cancel the expired, hold those whose handler no live session knows and that is
-- not remote. `only`: of other handlers only the expired ones are looked at.
-- An item that expires may end its batch, which must be locked first; a task with an order key lets the next one wait;
-- and where a handler has routes, something may follow. Such tasks are only named.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), known AS MATERIALIZED (
    SELECT %(handlers)s::text[] || ARRAY(
        SELECT DISTINCT unnest(handlers) FROM {schema}.sessions, clock WHERE NOT ended AND expires_at > now
        UNION ALL SELECT name FROM {schema}.handlers WHERE remote
    ) AS names
), head AS MATERIALIZED (
    SELECT t.id, t.expired, t.handler, t.expired AND (
        t.batch IS NOT NULL OR t.order_key IS NOT NULL OR EXISTS (SELECT FROM {schema}.handlers WHERE routed)
    ) AS named FROM {looked_at}
), found AS MATERIALIZED (
    SELECT t.place, head.expired FROM head, LATERAL (
        SELECT ctid AS place FROM {schema}.tasks WHERE id = head.id AND state = 'pending' FOR UPDATE SKIP LOCKED
    ) AS t
    WHERE (expired AND NOT named) OR (
        NOT expired AND %(handlers)s::text[] IS NOT NULL AND handler <> ALL ((SELECT names FROM known)::text[]))
), moved AS (
    UPDATE {schema}.tasks AS t SET
        state = CASE WHEN expired THEN 'cancelled' ELSE 'held' END,
        reason = CASE WHEN expired THEN 'expired' ELSE 'handler' END,
        finished_at = CASE WHEN expired THEN (SELECT now FROM clock) END
    FROM found WHERE t.ctid = found.place
    RETURNING t.queue, t.handler, t.state, t.batch
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch, handler, at)
    SELECT queue, state, count(*), batch, told, (SELECT now FROM clock)
    FROM moved, LATERAL (SELECT CASE WHEN state = 'cancelled' THEN handler END AS told) AS t
    GROUP BY queue, state, batch, told
    UNION ALL
    SELECT queue, 'pending', -count(*), batch, NULL, NULL FROM moved GROUP BY queue, batch
)
SELECT count(*), ARRAY(SELECT id FROM head WHERE named) FROM moved
