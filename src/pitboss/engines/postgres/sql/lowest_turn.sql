SELECT coalesce(min(coalesce((record::json ->> 'turn')::bigint, 0)), 0) FROM {schema}.resources WHERE pool = %(pool)s::text
