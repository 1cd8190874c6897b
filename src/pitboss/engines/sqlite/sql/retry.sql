UPDATE pitboss_tasks
SET
    state = ?2,
    reason = ?3,
    run_at = NULL,
    expires_at = NULL,
    started_at = NULL,
    finished_at = NULL,
    result = NULL,
    tried = NULL,
    rotations = 0,
    attempts = attempts * ?4,
    losses = losses * ?4,
    crashes = crashes * ?4
WHERE id = ?1
