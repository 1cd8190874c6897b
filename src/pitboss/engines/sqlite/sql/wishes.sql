SELECT key, value, version, wished_by FROM pitboss_wishes WHERE version > ? ORDER BY version
