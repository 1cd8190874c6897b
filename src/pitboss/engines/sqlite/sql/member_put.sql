INSERT INTO pitboss_resources (
    pool, name, stage, rank, last_used_at, available_at, in_use, enabled, blacklisted_until, record, labels, about
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (pool, name) DO UPDATE SET
stage = excluded.stage,
rank = excluded.rank,
last_used_at = excluded.last_used_at,
available_at = excluded.available_at,
in_use = excluded.in_use,
enabled = excluded.enabled,
blacklisted_until = excluded.blacklisted_until,
record = excluded.record,
labels = excluded.labels,
about = excluded.about
