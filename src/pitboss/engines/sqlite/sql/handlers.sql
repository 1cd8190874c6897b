SELECT name, queue, policy, schema, resources FROM pitboss_handlers ORDER BY name
