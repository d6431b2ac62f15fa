"""What a program is made of: capture (FX -> OpGraph) and the road from any program to an ATen graph."""

from autostream.graph.capture import capture
from autostream.graph.model import Op, OpGraph, Storage, TensorSpec, Unit, Why
from autostream.graph.programs import AtenProgram, to_aten

__all__ = ["AtenProgram", "Op", "OpGraph", "Storage", "TensorSpec", "Unit", "Why", "capture", "to_aten"]
