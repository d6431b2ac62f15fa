"""Prices from what ran: kernels of a profile as operators, and which operator each of them is."""
