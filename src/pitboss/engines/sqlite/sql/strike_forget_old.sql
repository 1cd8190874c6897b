DELETE FROM pitboss_strikes WHERE at <= ?
