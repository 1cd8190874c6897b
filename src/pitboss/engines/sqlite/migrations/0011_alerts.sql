-- What the leader knows of alerts: one row, from its first look on. Until when operators want to hear nothing of a rule.
CREATE TABLE pitboss_alert_notes (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    body TEXT NOT NULL
);

CREATE TABLE pitboss_silences (
    rule TEXT PRIMARY KEY,
    until INTEGER NOT NULL,
    at INTEGER NOT NULL,
    silenced_by TEXT NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;
