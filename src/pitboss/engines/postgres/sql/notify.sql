SELECT pg_notify(%(channel)s::text, %(payload)s::text)
