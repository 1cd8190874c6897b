"""What a store needs done now and then, one small file per duty. Harmless if two do it at once."""
