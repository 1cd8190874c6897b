id, handler, queue, state, params, priority, created_at, run_at, attempts, max_attempts, timeout, expires_at, unique_key,
tags, parent, reason, progress, note, result, error, outcome, session, claim, worker, started_at, finished_at, losses,
crashes, cancel_asked, batch, want, resource, tried, rotations
