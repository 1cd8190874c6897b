INSERT INTO {schema}.starts (queue, at) SELECT unnest(%(queues)s::text[]), %(now)s::bigint
