DELETE FROM pitboss_strikes WHERE pool = ? AND destination = ?
