"""A host's processes: starts workers, hands them tasks, keeps them alive, and stops them well."""
