SELECT session FROM {schema}.leader WHERE one FOR UPDATE
