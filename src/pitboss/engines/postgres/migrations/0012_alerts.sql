-- What the leader knows of alerts: one row, from its first look on. Until when operators want to hear nothing of a rule.
CREATE TABLE {schema}.alert_notes (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL,
    body text NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE {schema}.silences (
    rule text COLLATE "C" PRIMARY KEY,
    until bigint NOT NULL,
    at bigint NOT NULL,
    by text NOT NULL,
    reason text NOT NULL
);
