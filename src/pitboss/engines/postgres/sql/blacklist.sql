SELECT count(*) FILTER (WHERE enabled), count(*) FILTER (WHERE enabled AND blacklisted_until > %(now)s::bigint
    AND name <> ALL (%(besides)s::text[]))
FROM {schema}.resources WHERE pool = %(pool)s::text
