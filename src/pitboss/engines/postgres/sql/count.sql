SELECT count(*) FROM {schema}.tasks WHERE ({condition})
