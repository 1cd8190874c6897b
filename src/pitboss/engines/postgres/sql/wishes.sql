SELECT key, value, version, by FROM {schema}.wishes WHERE version > %(since)s::bigint ORDER BY version
