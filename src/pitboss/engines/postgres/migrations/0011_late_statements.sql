-- How far away from the expected moment a statement may be depends on whether it was refused for being late before.
-- The function with two parameters stays for versions that run on during an update.
CREATE FUNCTION {schema}.steady_now(shift bigint, expected bigint, slack bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    steady bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + shift;
BEGIN
    IF expected IS NULL OR steady BETWEEN expected - slack AND expected + slack THEN
        RETURN steady;
    END IF;
    RAISE EXCEPTION 'the clock of the server was set, or this call came late' USING ERRCODE = 'PB001';
END $$;
