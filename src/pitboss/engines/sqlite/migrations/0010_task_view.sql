-- Tasks for people and for views of their own: these columns stay, whatever becomes of the tables. A migration that changes
-- the table of tasks drops the view and makes it again. Times are UTC; `params`, `result` and `error` are JSON.
CREATE VIEW pitboss_task_view AS
SELECT
    id, handler, queue, partition, batch, state, reason, priority, params, result, error, attempts, losses, progress, note,
    worker, resource, unique_key, parent,
    strftime('%Y-%m-%d %H:%M:%f', (created_at + (SELECT ahead FROM pitboss_clock)) / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%d %H:%M:%f', (run_at + (SELECT ahead FROM pitboss_clock)) / 1e6, 'unixepoch') AS run_at,
    strftime('%Y-%m-%d %H:%M:%f', (started_at + (SELECT ahead FROM pitboss_clock)) / 1e6, 'unixepoch') AS started_at,
    strftime('%Y-%m-%d %H:%M:%f', (finished_at + (SELECT ahead FROM pitboss_clock)) / 1e6, 'unixepoch') AS finished_at
FROM pitboss_tasks;
