SELECT id FROM {schema}.tasks AS t
WHERE state IN ('completed', 'failed', 'cancelled') AND finished_at IS NOT NULL AND batch IS NULL
    AND finished_at < coalesce(%s::bigint, 9223372036854775807)
    AND (unique_key IS NULL OR (
        SELECT true FROM {schema}.uniques AS u WHERE u.key = t.unique_key AND u.task = t.id AND u.until > %s::bigint
    ) IS NULL)
    AND ({condition})
ORDER BY id LIMIT %s FOR UPDATE
