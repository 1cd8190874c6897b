UPDATE pitboss_leader SET term = term + 1, session = ?
