ALTER TABLE {schema}.tasks ADD COLUMN by_wall bigint;

CREATE INDEX tasks_by_wall ON {schema}.tasks (by_wall) WHERE by_wall IS NOT NULL;

CREATE TABLE {schema}.clock (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    shift bigint NOT NULL,
    confirmed_since bigint NOT NULL DEFAULT 0,
    confirmed_at bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

INSERT INTO {schema}.clock (shift) VALUES (0);

CREATE FUNCTION {schema}.steady_now(shift bigint, expected bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    steady bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + shift;
BEGIN
    IF expected IS NULL OR steady BETWEEN expected - 1000000 AND expected + 1000000 THEN
        RETURN steady;
    END IF;
    RAISE EXCEPTION 'the clock of the server was set, or this call came late' USING ERRCODE = 'PB001';
END $$;
