-- Which session leads, and under which term. One row; `term` stays when no session leads, so that none is used twice.
CREATE TABLE pitboss_leader (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    term INTEGER NOT NULL,
    session INTEGER
);

INSERT INTO pitboss_leader (one, term) VALUES (1, 0);
