-- One row, locked by a session that takes the lead. `term` stays when there is no leader, so that none is used twice.
CREATE TABLE {schema}.leader (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    term bigint NOT NULL,
    session bigint
);

INSERT INTO {schema}.leader (term) VALUES (0);
