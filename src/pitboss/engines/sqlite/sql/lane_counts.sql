SELECT lane, status, count(*) AS n FROM pitboss_batches WHERE finished_at IS NULL GROUP BY lane, status
