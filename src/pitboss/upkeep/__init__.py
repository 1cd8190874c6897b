"""Regular work on the store, one small file per duty (`all_duties` lists them). Every manager does it if that is
harmless; otherwise only the leader does, under its term."""
