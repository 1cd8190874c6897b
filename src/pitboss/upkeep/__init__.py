"""Regular work on the store, one small file per duty. Every manager does it if that is harmless; otherwise only the
leader does, under its term."""
