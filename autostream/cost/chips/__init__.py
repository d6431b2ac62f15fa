"""Chip files and operator factors: every number with its source."""
