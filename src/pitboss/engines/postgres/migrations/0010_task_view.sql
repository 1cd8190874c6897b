-- Tasks for people and for views of their own: these columns stay, whatever becomes of the tables. A migration that changes
-- the table of tasks replaces the view. `params`, `result` and `error` are JSON as text.
CREATE VIEW {schema}.task_view AS
SELECT
    id, handler, queue, partition, batch, state, reason, priority, params, result, error, attempts, losses, progress, note,
    worker, resource, unique_key, parent,
    to_timestamp((created_at - shift) / 1e6) AS created_at, to_timestamp((run_at - shift) / 1e6) AS run_at,
    to_timestamp((started_at - shift) / 1e6) AS started_at, to_timestamp((finished_at - shift) / 1e6) AS finished_at
FROM {schema}.tasks, {schema}.clock;
