-- Keys of more than 200 characters end in a digest: two of them that began alike were one key. `left` alone cut them.
CREATE OR REPLACE FUNCTION {schema}.partition_key(texts text[], names text[], params text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    given json := params::json;
    made text := '';
BEGIN
    FOR part IN 1 .. cardinality(texts) LOOP
        made := made || texts[part];
        CONTINUE WHEN names[part] IS NULL;
        IF json_typeof(given -> names[part]) IN ('string', 'number', 'boolean') THEN
            made := made || (given ->> names[part]);
        ELSE
            RETURN NULL;
        END IF;
    END LOOP;
    IF length(made) > 200 THEN
        RETURN left(made, 167) || '~' || md5(made);
    END IF;
    RETURN nullif(made, '');
END $$;
