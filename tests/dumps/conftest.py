"""Real dumps, made here by TorchAir: once for all tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from autostream import offline
from autostream.demo import moe_decode_layer
from autostream.graph.programs import AtenProgram, to_aten


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """The demo layer as a graph, and its dump in every form."""

    program: AtenProgram
    forms: Mapping[str, Path]


@pytest.fixture(scope="session")
def demo(npu_host: None, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Convert the demo layer with the real TorchAir."""
    program = to_aten(*moe_decode_layer(npu=True), None)
    converted = offline.convert(program.graph_module, program.example_inputs)
    folder = tmp_path_factory.mktemp("dumps")
    forms = {name: folder / f"demo.{name}" for name in ("pbtxt", "txt", "pb")}
    forms["pbtxt"].write_text(converted.pbtxt)
    forms["txt"].write_text(converted.text)
    forms["pb"].write_bytes(converted.serialized)
    return Demo(program=program, forms=forms)
