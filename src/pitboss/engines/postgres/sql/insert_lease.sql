INSERT INTO {schema}.leases (id, pool, name, given, leased_at, expires_at)
VALUES (
    %(id)s::text, %(pool)s::text, %(name)s::text, %(given)s::text, %(now)s::bigint, %(expires_at)s::bigint
)
