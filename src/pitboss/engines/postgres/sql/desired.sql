-- name: wish_set
WITH next AS (
    UPDATE {schema}.desired SET version = version + 1 WHERE one RETURNING version
)
INSERT INTO {schema}.wishes (key, value, version, by)
SELECT %(key)s::text, %(value)s::text, version, %(by)s::text FROM next
ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version, by = excluded.by
RETURNING version

-- name: wish_list
SELECT key, value, version, by FROM {schema}.wishes WHERE version > %(since)s::bigint ORDER BY version
