SELECT resource FROM pitboss_bindings WHERE pool = ? AND key = ? AND until > ?
