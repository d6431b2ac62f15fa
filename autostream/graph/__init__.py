"""What a program is made of: capture (FX -> OpGraph) and the road from any program to an ATen graph."""

from autostream.graph.capture import capture
from autostream.graph.model import Op, OpGraph, Storage, TensorSpec, Unit, Why
from autostream.graph.programs import AtenProgram, to_aten
from autostream.graph.routing import Load, expected_load

__all__ = ["AtenProgram", "Load", "Op", "OpGraph", "Storage", "TensorSpec", "Unit", "Why", "capture", "expected_load", "to_aten"]
