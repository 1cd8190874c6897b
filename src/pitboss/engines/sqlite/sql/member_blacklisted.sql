SELECT count(*)
FROM pitboss_resources
WHERE blacklisted_until > 0 AND pool = ? AND blacklisted_until > ? AND enabled = 1 AND number <> ?
