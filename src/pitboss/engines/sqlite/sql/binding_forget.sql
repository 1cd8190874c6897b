DELETE FROM pitboss_bindings WHERE until <= ?
