"""Helpers of event handlers."""
