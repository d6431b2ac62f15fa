"""Divide and solve: a program falls apart into regions, each is solved alone, and all are put together."""
