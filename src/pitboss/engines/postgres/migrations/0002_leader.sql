-- One row, which whoever takes the lead locks. `term` stays when nobody leads, so that none is used twice.
CREATE TABLE {schema}.leader (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    term bigint NOT NULL,
    session bigint
);

INSERT INTO {schema}.leader (term) VALUES (0);
