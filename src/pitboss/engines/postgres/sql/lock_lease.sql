-- Two who ask under the same name get one lease.
SELECT pg_advisory_xact_lock(hashtextextended(%(lease)s::text, 1))
