SELECT name, queue, policy, schema, resources FROM {schema}.handlers ORDER BY name
