DELETE FROM pitboss_attempts
WHERE task = ?1 AND claim <= (SELECT claim FROM pitboss_attempts WHERE task = ?1 ORDER BY claim DESC LIMIT 1 OFFSET ?2)
