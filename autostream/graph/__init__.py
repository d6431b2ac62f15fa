"""What a program is made of: capture (FX -> OpGraph) and the road from any program to an ATen graph.

Here are the data types alone; `capture`, `programs` and `routing` need torch and are imported by name.
"""

from __future__ import annotations

from autostream.graph.model import Op, Operators, OpGraph, Storage, TensorSpec, Unit, Why

__all__ = ["Op", "OpGraph", "Operators", "Storage", "TensorSpec", "Unit", "Why"]
