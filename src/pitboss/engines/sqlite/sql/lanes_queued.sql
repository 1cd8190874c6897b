SELECT DISTINCT lane FROM pitboss_batches WHERE status = 'queued'
