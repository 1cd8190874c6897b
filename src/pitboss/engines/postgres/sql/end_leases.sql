-- Those that are still past their time; their members are locked.
DELETE FROM {schema}.leases WHERE id = ANY (ARRAY(
    SELECT id FROM {schema}.leases
    WHERE id = ANY (%(ids)s::text[]) AND expires_at <= %(now)s::bigint ORDER BY id FOR UPDATE
)) RETURNING pool, name, leased_at
