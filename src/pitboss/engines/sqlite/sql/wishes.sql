SELECT key, value, version, wished_by FROM wishes WHERE version > ? ORDER BY version
