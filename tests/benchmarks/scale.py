# ruff: noqa: E402 (the repository must be importable, and the environment ready, before torch is imported)
"""How long the pass takes on deep models, and how much memory, beside TorchAir's conversion of the same graph in the same run.

    python tests/benchmarks/scale.py [--layers 1 8 61] [--deepseek LAYERS] [--repeat 3] [--json]

The graphs: whole decode layers of DeepSeek-V3 in torch_npu operators (latent attention, then the mixture of experts), and with
``--deepseek`` the model of the `transformers` package with that many layers, in ATen operators on the meta device (61 layers
take minutes to export). Times are CPU seconds of this process, and wall clock beside them; both depend on the machine, their
ratios less so. The pass is everything from the analysis to the verified rewrite but for TorchAir's conversion of the emitted
graph, on which the proof is repeated: that one is listed alone, and the ratio is given without and with it. The conversion beside
the pass is what TorchAir does for any graph that it compiles; that of the proof leaves out what nobody looks at
(`autostream.offline.bare`).

Both get the graph in the class of module in which torch.compile hands it over, whose code is made only if somebody runs it:
putting the emitted graph in its place makes none, and neither do TorchAir's own copies. A plain `fx.GraphModule` would cost both
of them more: the pass the making of its code once, the conversion twice.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autostream import offline

offline.prepare_environment()

from rich.console import Console
from rich.table import Table
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from autostream import acceptance, pipeline, trial
from autostream.chips import cost_model
from autostream.graph.capture import Captured
from autostream.graph.programs import to_aten
from autostream.options import Options
from autostream.program.simulation.simulate import Simulator
from autostream.rewrite.air import Air
from autostream.scheduling import strategy
from tests.models import serving
from tests.models.configs import language_model

_Value = TypeVar("_Value")
_CHIP = "910B2"
#: What is counted as which stage: the functions that `autostream.pipeline` and `autostream.trial` call.
_STAGES: dict[str, tuple[tuple[Any, str], ...]] = {
    "capture": ((pipeline, "Captured"), (Captured, "rewritten")),
    "costs": ((pipeline, "expected_load"), (pipeline, "price_graph"), (trial, "price_added"), (trial, "unmeasured")),
    "build": ((pipeline, "build_problem"),),
    "solve": ((type(strategy(Options())), "solve"),),
    "emit": ((trial, "emit"),),
    "read back": ((pipeline, "read_fx"), (trial, "read_fx")),
    "verify": ((trial, "orders_of"), (trial, "prove")),
    "simulate": ((pipeline, "Simulator"), (trial, "Simulator"), (Simulator, "timeline"), (acceptance, "gain")),
    "memory": ((trial, "peak_memory"),),
    "IR proof": ((trial, "prove_ascend_ir"),),
}
_CONVERSION = "conversion"
#: TorchAir's own conversion.
_COMPILER = "torchair.npu_fx_compiler"
#: The emitted graph is put in the place of the given one.
_SWAP = "swap"


@dataclass(slots=True)
class _Clock:
    """CPU and wall seconds by stage. A stage inside another counts for itself alone."""

    cpu: dict[str, float] = field(default_factory=dict)
    wall: dict[str, float] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _since: tuple[float, float] = (0.0, 0.0)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what runs inside for `name`."""
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def timed(self, name: str, function: Callable[..., _Value]) -> Callable[..., _Value]:
        """Return `function`, its time counted for `name`."""

        def counted(*args: Any, **kwargs: Any) -> _Value:
            with self.stage(name):
                return function(*args, **kwargs)

        return counted

    def _charge(self) -> None:
        now = (time.process_time(), time.perf_counter())
        if self._open:
            for spent, end, start in zip((self.cpu, self.wall), now, self._since, strict=True):
                spent[self._open[-1]] = spent.get(self._open[-1], 0.0) + end - start
        self._since = now


@contextlib.contextmanager
def _watched(clock: _Clock, stages: Mapping[str, Sequence[tuple[Any, str]]]) -> Iterator[None]:
    """Have calls of functions counted by stage."""
    watched = [(owner, name, stage) for stage, functions in stages.items() for owner, name in functions]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in watched]
    try:
        for (owner, name, stage), (_, _, function) in zip(watched, originals, strict=True):
            setattr(owner, name, clock.timed(stage, function))
        yield
    finally:
        for owner, name, function in originals:
            setattr(owner, name, function)


def _pass(module: fx.GraphModule, *, proved_on_ir: bool) -> tuple[_Clock, Any]:
    """Run the pass once, and put the graph back; return its times by stage (``other``: in none of them) and its verdict."""
    clock, given = _Clock(), module.graph
    convert = clock.timed(_CONVERSION, offline.convert) if proved_on_ir else None
    model, options = cost_model(_CHIP), Options(strict=True)
    gc.collect()
    with _watched(clock, _STAGES), clock.stage("other"):
        outcome = pipeline.plan(module, model=model, options=options, dialect=Air(), convert=convert)
        if outcome.graph_module is not None:
            with clock.stage(_SWAP):
                module.graph = outcome.graph_module.graph
    module.graph = given
    return clock, outcome.verdict


def _handed_over(model: Any) -> fx.GraphModule:
    """Return the ATen graph of a model in the class of module in which torch.compile hands graphs to a backend."""
    exported = to_aten(*model).graph_module
    module = _LazyGraphModule(exported, exported.graph)
    module.meta.update(exported.meta)
    return module


def _conversion(module: fx.GraphModule) -> _Clock:
    """Convert a graph as TorchAir does when it compiles it, whoever looks at what comes out; return the time of that alone."""
    clock = _Clock()
    compiler = importlib.import_module(_COMPILER)._NpuFxCompiler
    gc.collect()
    with _watched(clock, {_CONVERSION: [(compiler, "__call__")]}):
        offline.convert(module, configure=lambda _config: None)
    return clock


def _resident(field_name: str) -> int:
    """Return a field of this process's memory status, bytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field_name))


def _peak_memory(module: fx.GraphModule) -> dict[str, int | None]:
    """Return what one run of the pass adds to the memory that Python hands out and to that of the process, at their peaks.

    The conversion is left out. The growth of the process misses what it takes from memory that was freed before; None where the
    system does not let it be measured.
    """
    gc.collect()
    grown = None
    with contextlib.suppress(OSError, StopIteration):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # starts the peak of this process anew
        before = _resident("VmRSS")
        _pass(module, proved_on_ir=False)
        grown = max(0, _resident("VmHWM") - before)
    tracemalloc.start()
    try:
        _pass(module, proved_on_ir=False)
        return {"python": tracemalloc.get_traced_memory()[1], "process": grown}
    finally:
        tracemalloc.stop()


def measure(layers: int, build: Callable[[], Any], repeat: int, *, convertible: bool) -> dict[str, Any]:
    """Measure one graph: seconds, bytes."""
    exporting = _Clock()
    with exporting.stage("export"):
        module = _handed_over(build())
    memory = _peak_memory(module)
    conversions, passes = [], []
    verdict = None
    for _ in range(repeat):
        if convertible:
            conversions.append(_conversion(module))
        clock, verdict = _pass(module, proved_on_ir=convertible)
        passes.append(clock)
    result: dict[str, Any] = {"layers": layers, "nodes": len(module.graph.nodes), "memory_bytes": memory}
    assert verdict is not None
    result |= {"verdict": verdict.code, "side_streams": verdict.side_streams}
    for kind in ("cpu", "wall"):
        spent = [getattr(clock, kind) for clock in passes]
        names = (*_STAGES, _SWAP, _CONVERSION, "other")
        stages = {name: statistics.median(times.get(name, 0.0) for times in spent) for name in names}
        alone = statistics.median(sum(times.values()) - times.get(_CONVERSION, 0.0) for times in spent)
        converting = statistics.median(getattr(clock, kind)[_CONVERSION] for clock in conversions) if conversions else None
        export = getattr(exporting, kind)["export"]
        result[kind] = {
            "export": export,
            "conversion": converting,
            "pass": alone,
            "stages": stages,
            "pass_over_conversion": alone / converting if converting else None,
            "with_its_conversion": (alone + stages[_CONVERSION]) / converting if converting else None,
            "pass_over_export": alone / export,
            "pass_per_layer": alone / layers,
        }
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, nargs="*", default=[1, 8, 61], help="decode layers (default: 1 8 61)")
    parser.add_argument(
        "--deepseek", type=int, metavar="LAYERS", help="also DeepSeek-V3 in ATen operators, with that many layers"
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs; the median is shown (default: 3)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    asked = parser.parse_args(arguments)
    offline.activate()
    _pass(_handed_over(serving.decode_layers()), proved_on_ir=True)  # what a process loads once
    npu = [_decode(layers, asked.repeat) for layers in asked.layers]
    aten = [_deepseek(asked.deepseek, asked.repeat)] if asked.deepseek else []
    result = {"chip": _CHIP, "decode": npu, "deepseek_aten": aten, "per_layer_61_over_8": _growth(npu)}
    if asked.json:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
    else:
        _show(result)
    return 0


def _decode(layers: int, repeat: int) -> dict[str, Any]:
    return measure(layers, lambda: serving.decode_layers(layers=layers), repeat, convertible=True)


def _deepseek(layers: int, repeat: int) -> dict[str, Any]:
    settings = {"num_hidden_layers": layers, "n_routed_experts": 16, "_experts_implementation": "grouped_mm"}
    return measure(layers, language_model("DeepseekV3", 1, 32, **settings), repeat, convertible=False)


def _growth(results: Sequence[dict[str, Any]]) -> float | None:
    """Return the CPU time of the pass per layer at 61 layers as a multiple of that at 8."""
    by_layers = {result["layers"]: result["cpu"]["pass_per_layer"] for result in results}
    return by_layers[61] / by_layers[8] if {8, 61} <= by_layers.keys() else None


def _show(result: dict[str, Any]) -> None:
    measured = {f"{item['layers']} layers": item for item in result["decode"]}
    measured |= {f"DeepSeek-V3 ATen, {item['layers']} layers": item for item in result["deepseek_aten"]}
    table = Table("CPU s (wall s)", *measured, title=f"The pass beside TorchAir's conversion, {result['chip']}")
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row("FX nodes", *(str(item["nodes"]) for item in measured.values()))
    table.add_row("verdict", *(f"{item['verdict']}, {item['side_streams']} side streams" for item in measured.values()))
    for key in ("export", "conversion", "pass"):
        table.add_row(key, *(_seconds(item["cpu"][key], item["wall"][key]) for item in measured.values()))
    for stage in (*_STAGES, _SWAP, "other", _CONVERSION):
        times = [(item["cpu"]["stages"][stage], item["wall"]["stages"][stage]) for item in measured.values()]
        name = "its conversion" if stage == _CONVERSION else stage
        table.add_row(f"  {name}", *(_seconds(*pair) for pair in times), style="dim")
    for key, name in (
        ("pass_over_conversion", "pass / conversion"),
        ("with_its_conversion", "(pass + its conversion) / conversion"),
        ("pass_over_export", "pass / export"),
    ):
        shares = [(item["cpu"][key], item["wall"][key]) for item in measured.values()]
        table.add_row(name, *("-" if cpu is None else f"{100 * cpu:.0f} % ({100 * wall:.0f} %)" for cpu, wall in shares))
    table.add_row("pass, a layer", *(f"{item['cpu']['pass_per_layer'] * 1e3:.1f} ms" for item in measured.values()))
    for key in ("python", "process"):
        sizes = [item["memory_bytes"][key] for item in measured.values()]
        table.add_row(f"peak memory ({key})", *("-" if size is None else f"{size / 2**20:.0f} MiB" for size in sizes))
    console = Console(width=110)
    console.print(table)
    if result["per_layer_61_over_8"] is not None:
        console.print(f"Time of the pass per layer, 61 layers over 8: {result['per_layer_61_over_8']:.2f}")


def _seconds(cpu: float | None, wall: float | None) -> str:
    return "-" if cpu is None or wall is None else f"{cpu:.2f} ({wall:.2f})"


if __name__ == "__main__":
    sys.exit(main())
