UPDATE pitboss_leader SET session = NULL WHERE session = ?
