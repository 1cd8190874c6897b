DELETE FROM {schema}.handlers WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.handlers WHERE name = ANY (%(names)s::text[]) ORDER BY name FOR UPDATE
))
