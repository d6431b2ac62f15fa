"""Exact searches through time, for regions that are small enough."""
