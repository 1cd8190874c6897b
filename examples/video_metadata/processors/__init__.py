"""What the worker does for each type of task."""
