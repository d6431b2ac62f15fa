"""The built-in model of ``autostream demo``: a DeepSeek-style mixture-of-experts decode layer.

It exists twice with the same dataflow: `npu_layer` in the fused operators of torch_npu, `aten_layer` in plain ATen operators.
"""

from autostream.demo.build import moe_decode_layer
from autostream.demo.shape import MoeShape

__all__ = ["MoeShape", "moe_decode_layer"]
