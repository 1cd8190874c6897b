-- The leader's term, kept from changing until this transaction is over. A row that changed while it was waited for no
-- longer fits the session that was found with it, and is left out: that term was over anyway.
SELECT l.term FROM {schema}.leader AS l, {schema}.sessions AS s
WHERE l.one AND s.number = l.session AND NOT s.ended
    AND s.expires_at > coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FOR SHARE OF l
