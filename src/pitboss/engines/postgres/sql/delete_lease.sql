DELETE FROM {schema}.leases WHERE id = %(id)s::text AND leased_at = %(since)s::bigint RETURNING id
