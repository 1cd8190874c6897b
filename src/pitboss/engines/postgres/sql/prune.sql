WITH found AS MATERIALIZED (
    SELECT t.* FROM unnest(%(ids)s::uuid[]) AS wanted (task), LATERAL (
        SELECT ctid AS place, id, unique_key FROM {schema}.tasks WHERE id = wanted.task
    ) AS t
), runs AS (
    DELETE FROM {schema}.attempts WHERE task = ANY (%(ids)s::uuid[])
), keys AS MATERIALIZED (
    SELECT u.place FROM (SELECT id, unique_key FROM found WHERE unique_key IS NOT NULL ORDER BY unique_key) AS f,
    LATERAL (
        SELECT ctid AS place FROM {schema}.uniques WHERE key = f.unique_key AND task = f.id FOR UPDATE
    ) AS u
), freed AS (
    DELETE FROM {schema}.uniques AS u USING keys WHERE u.ctid = keys.place
), gone AS (
    DELETE FROM {schema}.tasks AS t USING found WHERE t.ctid = found.place RETURNING t.queue, t.state, t.batch
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch)
    SELECT queue, state, -count(*), batch FROM gone GROUP BY queue, state, batch
)
SELECT count(*), count(*) FILTER (WHERE state NOT IN ('completed', 'failed', 'cancelled')) FROM gone
