SELECT name, rules FROM pitboss_pools ORDER BY name
