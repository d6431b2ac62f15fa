"""Proofs: what is ordered, what may run at the same time, and what must not."""
