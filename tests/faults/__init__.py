"""Faults that multi-stream code has had in public, as scenarios of the whole pipeline: each stands for a kind.

K1 data race, K3 lost or misplaced synchronisation, K5 order of collectives, K6 budgets, K7 annotation lost or misplaced,
K8 no gain, K9 wrong phase or shape.
"""
