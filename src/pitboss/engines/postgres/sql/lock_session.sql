-- A renewal that is on its way is waited for: a leader that it keeps alive must not lose the lead.
SELECT true FROM {schema}.sessions WHERE number = %(session)s::bigint FOR SHARE
