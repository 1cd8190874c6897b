DELETE FROM attempts
WHERE task = ?1 AND claim <= (SELECT claim FROM attempts WHERE task = ?1 ORDER BY claim DESC LIMIT 1 OFFSET ?2)
