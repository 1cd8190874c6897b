"""Runs handlers: one claim in, one outcome out."""
