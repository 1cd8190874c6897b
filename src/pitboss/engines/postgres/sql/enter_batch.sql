UPDATE {schema}.batches SET status = %(status)s::text, rank = %(rank)s::bigint, started_at = %(started_at)s::bigint,
    finished_at = %(finished_at)s::bigint, reason = %(reason)s::text
WHERE id = %(id)s::text
