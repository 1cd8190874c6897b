SELECT value FROM pitboss_meta WHERE name = 'desired'
