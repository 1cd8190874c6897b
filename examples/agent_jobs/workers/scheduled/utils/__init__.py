"""Helpers of scheduled jobs."""
