"""Checks of params, and logging."""
