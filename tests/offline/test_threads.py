"""A user's own TorchAir compilation in one thread, and the conversion of our proof in another, at the same time."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import fx
from torch._guards import TracingContext, detect_fake_mode, tracing

from autostream import StreamPass, offline
from autostream.graph.programs import to_aten
from tests import models
from tests.offline.test_conversion import trace, two_streams

pytestmark = pytest.mark.usefixtures("npu_host")

#: Seconds after which two threads that wait for each other are a failure.
_PATIENCE = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What TorchAir makes of a graph, but for the name that tells it from the other graphs of the process."""

    kind: type
    serialized: bytes
    python_code: str


def compiled_plainly(graph_module: fx.GraphModule) -> tuple[str, Compiled]:
    """Compile a traced graph as TorchAir's users do, and return the name that it got and the rest."""
    torchair = importlib.import_module("torchair")
    config = torchair.CompilerConfig()
    config.mode = "max-autotune"
    inputs = [node.meta["val"] for node in graph_module.graph.find_nodes(op="placeholder")]
    copied = fx.GraphModule(graph_module, fx.Graph(tracer_cls=None))
    copied.graph.output(copied.graph.graph_copy(graph_module.graph, {}))
    with tracing(TracingContext(detect_fake_mode(inputs))):
        graph = torchair.get_compiler(config)(copied, inputs).runner.graph
    name, graph.name = graph.name, ""
    serialized = graph.model.SerializeToString(deterministic=True)
    return name, Compiled(kind=type(graph), serialized=serialized, python_code=graph.python_code)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Threads that brought up the graph engine, in order."""
    converter = importlib.import_module("torchair._ge_concrete_graph.fx2ge_converter")
    asked: list[int] = []
    monkeypatch.setattr(converter, "initialize_graph_engine", lambda *_: asked.append(threading.get_ident()))
    return asked


@pytest.fixture(scope="module")
def meeting() -> Iterator[SimpleNamespace]:
    """An operator in whose conversion another thread can be met: `graph` has it, and `met` is called meanwhile."""

    @torch.library.custom_op("autostream_test::meeting", mutates_args=())
    def operator(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    operator.register_fake(torch.empty_like)
    place = SimpleNamespace(met=lambda: None, graph=trace(lambda a: (torch.ops.autostream_test.meeting(a).neg(),), (4, 4)))

    def convert(x: Any, meta_outputs: Any = None) -> Any:
        place.met()
        return importlib.import_module("torchair._ge_concrete_graph.ge_apis").Abs(x)

    importlib.import_module("torchair").register_fx_node_ge_converter(torch.ops.autostream_test.meeting.default)(convert)
    yield place
    place.met = lambda: None


def number(name: str) -> int:
    return int(name.removeprefix("graph_"))


def in_the_midst_of(meeting: SimpleNamespace, action: Callable[[], Any]) -> tuple[offline.Converted, Any]:
    """Convert in another thread, and act in this one when the conversion is half done."""
    half_done, acted = threading.Event(), threading.Event()

    def met() -> None:
        half_done.set()
        assert acted.wait(_PATIENCE)

    meeting.met = met
    with ThreadPoolExecutor(1) as pool:
        converting = pool.submit(offline.convert, meeting.graph)
        try:
            assert half_done.wait(_PATIENCE)
            result = action()
        finally:
            acted.set()
        return converting.result(_PATIENCE), result


def test_a_compilation_in_the_midst_of_a_conversion_is_the_one_that_it_is_alone(
    meeting: SimpleNamespace, engine: list[int]
) -> None:
    graph_module = trace(two_streams, (8, 8), (8, 8))
    first, alone = compiled_plainly(graph_module)
    converted_alone = offline.convert(meeting.graph)
    converted, (second, beside) = in_the_midst_of(meeting, lambda: compiled_plainly(graph_module))
    third, after = compiled_plainly(graph_module)
    assert alone.kind.__name__ == "GeGraph" and "MatMul" in alone.python_code
    assert beside == alone == after
    assert [number(name) - number(first) for name in (first, second, third)] == [0, 1, 2]  # no name is given twice
    assert converted == converted_alone
    assert engine == [threading.get_ident()] * 3  # by every compilation, and by no conversion


def test_many_compilations_beside_the_pass_are_those_that_they_are_alone(engine: list[int]) -> None:
    captured = to_aten(*models.mixture(8)).graph_module
    graph_module = trace(two_streams, (8, 8), (8, 8))
    _, alone = compiled_plainly(graph_module)
    judged_alone = StreamPass(chip="910B2").judge(captured)
    done = threading.Event()

    def judge() -> list[Any]:
        try:
            return [StreamPass(chip="910B2").judge(captured) for _ in range(4)]
        finally:
            done.set()

    beside = []
    with ThreadPoolExecutor(1) as pool:
        judging = pool.submit(judge)
        while not done.is_set():
            beside.append(compiled_plainly(graph_module))
        outcomes = judging.result(_PATIENCE)
    assert beside and all(compiled == alone for _, compiled in beside)
    numbers = [number(name) for name, _ in beside]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert judged_alone.verdict.accepted and judged_alone.ascend_ir is not None
    assert [(outcome.verdict, outcome.ascend_ir) for outcome in outcomes] == [(judged_alone.verdict, judged_alone.ascend_ir)] * 4
    assert set(engine) == {threading.get_ident()}
