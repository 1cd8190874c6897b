-- name: alert_notes_get
SELECT body, version FROM {schema}.alert_notes

-- name: alert_notes_begin
INSERT INTO {schema}.alert_notes (version, body) VALUES (1, %(body)s::text) ON CONFLICT DO NOTHING RETURNING version

-- name: alert_notes_set
UPDATE {schema}.alert_notes SET body = %(body)s::text, version = version + 1 WHERE version = %(version)s::bigint
RETURNING version

-- name: silence_columns
rule, until, at, by, reason

-- name: silence_list
SELECT {silence_columns} FROM {schema}.silences WHERE until > {now} ORDER BY rule

-- name: silence_remove
-- This one, and those that are over; the one that is not.
DELETE FROM {schema}.silences WHERE rule = %(rule)s::text OR until <= %(moment)s::bigint
RETURNING {silence_columns}

-- name: silence_put
INSERT INTO {schema}.silences (rule, until, at, by, reason)
VALUES (%(rule)s::text, %(moment)s::bigint + %(lasts)s::bigint, %(moment)s::bigint, %(by)s::text, %(reason)s::text)
ON CONFLICT (rule) DO UPDATE SET until = excluded.until, at = excluded.at, by = excluded.by, reason = excluded.reason
RETURNING {silence_columns}
