SELECT name, queue, policy, schema FROM handlers ORDER BY name
