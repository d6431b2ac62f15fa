"""Small dumps written by hand: GraphDefs in text form, with shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def node(name: str, kind: str, inputs: Sequence[str] = (), shape: Sequence[int] | None = (256, 4096), **more: Any) -> str:
    """Return one operator; `more`: label, ports (input names), out (output name), rank_size, group."""
    parts = [f'name: "{name}" type: "{kind}"', *(f'input: "{source}"' for source in inputs)]
    if "label" in more:
        parts.append(f'attr {{ key: "_user_stream_label" value {{ s: "{more["label"]}" }} }}')
    if "group" in more:
        parts.append(f'attr {{ key: "group" value {{ s: "{more["group"]}" }} }}')
    parts += [f'input_desc {{ name: "{port}" }}' for port in more.get("ports", [])]
    if kind != "NetOutput":
        told = "" if shape is None else "shape { " + " ".join(f"dim: {size}" for size in shape) + " }"
        parts.append(f'output_desc {{ name: "{more.get("out", "y")}" dtype: {more.get("dtype", "DT_FLOAT16")} {told} }}')
    return "op { " + " ".join(parts) + " }\n"


def branches(*, tail: str = "", extra: str = "") -> str:
    """A product beside a chain of vector operators, joined by an addition: there is something to gain."""
    big = (4096, 4096)
    chain = [node("x", "Data", shape=big), node("w", "Data", shape=big), node("MatMul", "MatMul", ["x:0", "w:0"], big)]
    chain += [node("v0", "Exp", ["x:0"], big)]
    chain += [node(f"v{i}", "Exp", [f"v{i - 1}:0"], big) for i in range(1, 6)]
    return "".join([*chain, extra, node("Add", "Add", ["MatMul:0", "v5:0"], big), tail, node("out", "NetOutput", ["Add:0"])])
