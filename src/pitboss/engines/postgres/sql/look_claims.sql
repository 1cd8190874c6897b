-- What these tasks are bound to, before anything is locked. A batch is for ever; a resource lasts as long as the claim.
SELECT t.* FROM unnest(%(ids)s::uuid[]) AS wanted (task), LATERAL (
    SELECT id, state, session, claim, batch, resource, tried, started_at FROM {schema}.tasks WHERE id = wanted.task
) AS t
