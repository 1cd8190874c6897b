SELECT name, queue, policy, schema FROM {schema}.handlers ORDER BY name
