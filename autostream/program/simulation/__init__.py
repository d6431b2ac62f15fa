"""Simulated runs: when every step starts and ends, and why the whole takes as long as it does."""
