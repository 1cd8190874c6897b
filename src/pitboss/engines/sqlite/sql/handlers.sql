SELECT name, queue, policy, schema FROM pitboss_handlers ORDER BY name
