"""Programs read back from what was emitted: FX graphs, Ascend IR, and dumps of it."""
