"""Measurements. Ratios of things measured in turn in one run; absolute figures hold for that run only."""
