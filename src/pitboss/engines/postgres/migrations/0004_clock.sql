ALTER TABLE {schema}.tasks ADD COLUMN by_wall bigint;

CREATE INDEX tasks_by_wall ON {schema}.tasks (by_wall) WHERE by_wall IS NOT NULL;

CREATE TABLE {schema}.clock (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    shift bigint NOT NULL
);

INSERT INTO {schema}.clock (shift) VALUES (0);

CREATE FUNCTION {schema}.steady_now(shift bigint, expected bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    wall bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    stored bigint;
BEGIN
    IF shift IS NOT NULL AND (expected IS NULL OR wall + shift BETWEEN expected - 1000000 AND expected + 1000000) THEN
        RETURN wall + shift;
    END IF;
    SELECT c.shift INTO stored FROM {schema}.clock AS c;
    IF expected IS NULL OR wall + stored BETWEEN expected - 1000000 AND expected + 1000000 THEN
        RETURN wall + stored;
    END IF;
    RAISE EXCEPTION 'the clock of the server was set, or this call came late' USING ERRCODE = 'PB001';
END $$;
