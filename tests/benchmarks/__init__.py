"""Benchmarks: scripts that print a table, or JSON with ``--json``."""
