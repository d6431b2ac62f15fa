"""The zoo: small builders, each returning (module, example inputs), that the tests of every room trace and schedule.

Modules run on the CPU with reproducible weights unless a `device` is given; on ``"meta"`` they use no memory.
"""

from __future__ import annotations

from tests.models.networks import cnn_branches, llama_layer, many_layers
from tests.models.published import custom_pass_by_hand, four_inputs_by_hand, insert_streams, mixture
from tests.models.toys import chain, dynamic, kv_cache, tiny_vector, toy3x3
from tests.models.trace import aten_graph

__all__ = [
    "aten_graph",
    "chain",
    "cnn_branches",
    "custom_pass_by_hand",
    "dynamic",
    "four_inputs_by_hand",
    "insert_streams",
    "kv_cache",
    "llama_layer",
    "many_layers",
    "mixture",
    "tiny_vector",
    "toy3x3",
]
