"""Facts out: what goes on, told to those who watch. Sees, and changes nothing."""
