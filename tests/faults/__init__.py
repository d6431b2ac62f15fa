"""Faults that multi-stream code has had in public, as scenarios of the whole product: each stands for a kind.

K1 data race (test_races), K2 memory lifetime (test_memory), K3 missing, unpaired or misordered synchronisation (test_sync),
K4 gangs of cores (test_gangs), K5 order of collectives over ranks (test_collectives), K6 budgets of streams, events and bytes
(test_budgets), K7 annotations lost or misplaced (test_annotations), K8 no gain and K9 wrong phase, shape or mode (test_gain);
K10, the host's side, is spread over test_sync and test_budgets.

coverage.py says for every scenario by its number which tests stand for it, and what they do not show.
"""
