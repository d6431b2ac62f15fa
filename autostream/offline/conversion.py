"""Convert an ATen FX graph to Ascend IR with the real TorchAir, leaving no trace in the process."""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autostream.errors import ConversionError, InputError, OfflineError
from autostream.offline import detect, host
from autostream.offline.apart import replaced_here
from autostream.offline.backend import Pass, compiler_config
from autostream.offline.stable_text import StableGraph, stable_text

if TYPE_CHECKING:
    import torch

#: Conversion needs no graph engine, so the name of the first graph of a process stands for all.
_GRAPH_NAME = "graph_1"
#: The numbers of graphs meanwhile, which TorchAir also puts in the names of files and kernels that live as long as the process:
#: far from those of the user's own graphs, and none of them given twice.
_numbers = itertools.count(1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The Ascend IR of one graph, as TorchAir emitted it. Equal graphs and options give equal bytes, in every process."""

    #: A serialised `ge.proto.GraphDef`.
    serialized: bytes
    #: GE's compile options as TorchAir would pass them on, after the passes have had their say; sorted by name.
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The GraphDef in protobuf text form, map entries sorted (which `str` does not promise). Made anew on each access."""
        return stable_text(self._graph_def())

    @property
    def pbtxt(self) -> str:
        """The TensorFlow-like text that TorchAir's graph dump writes to a .pbtxt file. Made anew on each access."""
        from torchair._ge_concrete_graph.utils import convert_to_pbtxt

        return str(convert_to_pbtxt(StableGraph(self._graph_def())))

    def _graph_def(self) -> Any:
        from torchair._ge_concrete_graph.ge_ir_pb2 import GraphDef

        return GraphDef.FromString(self.serialized)


def convert(
    graph_module: torch.fx.GraphModule,
    example_inputs: Sequence[Any] | None = None,
    *,
    pre_pass: Pass | None = None,
    post_pass: Pass | None = None,
    configure: Callable[[Any], object] | None = None,
) -> Converted:
    """Convert an ATen graph to Ascend IR with TorchAir in mode max-autotune. Nothing is compiled or run.

    Without passes and without `configure` TorchAir is spared what it would make for others to look at; see
    `autostream.offline.bare`. The Ascend IR is the same.

    Args:
        graph_module: an ATen graph; it is left as it is.
        example_inputs: one per placeholder: fake, meta or real tensors (only shape, dtype and device count), or Python
            scalars. None takes ``node.meta["val"]`` of the placeholders.
        pre_pass: for ``config.post_grad_custom_pre_pass``.
        post_pass: for ``config.post_grad_custom_post_pass``.
        configure: called with TorchAir's ``CompilerConfig`` before conversion, to set more.

    Raises:
        OfflineError: the host cannot be brought up, or a converter asks for something that only the machine has that runs the
            model: GE's operator registry, or the process group of a collective (names the node).
        ConversionError: a node has no converter or its converter failed (names the node).
        InputError: the inputs do not fit the placeholders, or their shapes are unknown.
        Exception: whatever a pass raises, unchanged.
    """
    host.activate()
    with host.exclusive(), _swept():
        return _convert(graph_module, example_inputs, pre_pass, post_pass, configure)


def _convert(
    graph_module: torch.fx.GraphModule,
    example_inputs: Sequence[Any] | None,
    pre_pass: Pass | None,
    post_pass: Pass | None,
    configure: Callable[[Any], object] | None,
) -> Converted:
    import torchair

    inputs, fake_mode = _fake_inputs(_inputs(graph_module, example_inputs))
    failures: list[Exception] = []
    config = compiler_config(_noting_failures(pre_pass, failures), _noting_failures(post_pass, failures))
    if configure is not None:
        configure(config)
    bare = pre_pass is None and post_pass is None and configure is None
    compiler = torchair.get_compiler(config)
    try:
        with _tracing(fake_mode), _torchair_state_kept(bare=bare):
            compiled = compiler(_copy(graph_module, bare=bare), inputs)
    except Exception as error:
        if failures:
            raise failures[0] from None
        # TorchAir raises a copy whose message is a traceback; the exception that it stands for says more in less.
        raise _explained(error, graph_module) from error.__context__ or error
    return _read(compiled, config)


@contextlib.contextmanager
def _swept() -> Iterator[None]:
    """Collect the cyclic garbage that TorchAir leaves behind, without a look at what was there before.

    That is frozen meanwhile; a process that has frozen objects of its own is left to its collector.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()


def _noting_failures(custom_pass: Pass | None, failures: list[Exception]) -> Pass | None:
    """Note what a pass raises: TorchAir replaces every exception by one of the same type with a traceback for a message."""
    if custom_pass is None:
        return None

    def guarded(graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any], config: Any) -> object:
        try:
            return custom_pass(graph_module, example_inputs, config)
        except Exception as error:
            failures.append(error)
            raise

    return guarded


def _inputs(graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any] | None) -> list[Any]:
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    if example_inputs is None:
        missing = [node.name for node in placeholders if "val" not in node.meta]
        if missing:
            raise InputError(
                f"placeholder {missing[0]!r} has no meta['val']; trace the graph with fake tensors or give example_inputs"
            )
        return [node.meta["val"] for node in placeholders]
    if len(example_inputs) != len(placeholders):
        raise InputError(f"{len(example_inputs)} example inputs were given for {len(placeholders)} placeholders")
    return list(example_inputs)


def _fake_inputs(inputs: list[Any]) -> tuple[list[Any], Any]:
    """Return the inputs as fake tensors of one mode, and that mode."""
    import torch
    from torch._guards import detect_fake_mode
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    fake_mode = detect_fake_mode(inputs) or FakeTensorMode()

    def fake(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type == "npu" and not detect.has_cann():
            # torch_npu's own dispatch asks for the device, finds none and aborts the process.
            raise InputError("an example input is on device 'npu', which needs an NPU; offline, trace on 'cpu' or 'meta'")
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            return fake_mode.from_tensor(value, static_shapes=True)
        return value

    return [fake(value) for value in inputs], fake_mode


def _copy(graph_module: torch.fx.GraphModule, *, bare: bool) -> torch.fx.GraphModule:
    """Copy the graph, share the tensors, and give it the tuple of outputs that AOTAutograd's graphs have."""
    import torch
    from torch.fx._lazy_graph_module import _LazyGraphModule

    from autostream.offline.bare import bare_copy

    # As torch.compile would hand it over: TorchAir copies the module, and the code of a lazy one is made only if it is run.
    lazy = isinstance(graph_module, _LazyGraphModule)
    kind = _LazyGraphModule if lazy else torch.fx.GraphModule
    copied = bare_copy(graph_module) if bare else kind(graph_module, copy.deepcopy(graph_module.graph))
    copied.meta = dict(graph_module.meta)
    output = copied.graph.output_node()
    if not isinstance(output.args[0], (tuple, list)):
        output.args = ((output.args[0],),)
        copied.recompile()
    return copied


@contextlib.contextmanager
def _tracing(fake_mode: Any) -> Iterator[None]:
    """Let TorchAir find the inputs' own fake mode, as it does under torch.compile, and meet constants that are real tensors."""
    from torch._guards import TracingContext, tracing

    allowed = fake_mode.allow_non_fake_inputs
    fake_mode.allow_non_fake_inputs = True
    try:
        with tracing(TracingContext(fake_mode)):
            yield
    finally:
        fake_mode.allow_non_fake_inputs = allowed


@contextlib.contextmanager
def _torchair_state_kept(*, bare: bool) -> Iterator[None]:
    """Keep TorchAir's state: a conversion may run inside another one, before the user's own, or beside it in another thread.

    Kept are the counter that numbers graphs, the graph engine (it takes its global options from the first graph of the process
    and refuses others later), and this thread's stack of open scopes (left open by a conversion that fails inside one). Where
    `bare`, this thread's graphs are `BareGraph` meanwhile.
    """
    from torchair import npu_fx_compiler as compiler
    from torchair._ge_concrete_graph import fx2ge_converter as converter
    from torchair.scope import _scope_attr

    from autostream.offline.bare import BareGraph

    scopes = vars(_scope_attr.local)
    open_scopes = scopes.pop("scope_attr", None)
    with contextlib.ExitStack() as replacements:
        replacements.enter_context(replaced_here(compiler, "_next_unique_graph_id", lambda: next(_numbers)))
        replacements.enter_context(replaced_here(converter, "initialize_graph_engine", lambda *_: None))
        if bare:
            replacements.enter_context(replaced_here(converter, "GeGraph", BareGraph))
        try:
            yield
        finally:
            scopes.pop("scope_attr", None)
            if open_scopes is not None:
                scopes["scope_attr"] = open_scopes


def _read(compiled: Any, config: Any) -> Converted:
    """Take the GraphDef and the options out of TorchAir's compiled graph."""
    from torchair._ge_concrete_graph.ge_ir_pb2 import ModelDef

    graph = ModelDef.FromString(compiled.runner.graph.SerializeToString()).graph[0]
    graph.name = _GRAPH_NAME
    local_options, global_options = config.as_dict()
    options = {**global_options, **local_options}
    return Converted(
        serialized=graph.SerializeToString(deterministic=True),
        options={str(name): str(options[name]) for name in sorted(options)},
    )


def _explained(error: Exception, graph_module: torch.fx.GraphModule) -> OfflineError:
    """Say what failed at which node, out of a message that holds nested tracebacks, and whether it could only fail here.

    Where in the model the node comes from is noted on the error: a traceback shows it.
    """
    text = str(error)
    reason = re.split(r"\n\s*(?:While executing |Traceback )", text, maxsplit=1)[0].strip() or type(error).__name__
    node = re.search(r"While executing (?:%(\w+) : .*?target=([^\]]+)\]|(.+))", text)
    where = "the graph"
    if node is not None:
        where = f"node {node[1]!r} ({node[2].removeprefix('torch.ops.')})" if node[1] else repr(node[3])
    kind: type[OfflineError] = ConversionError
    if "GetRegisteredIrDef" in reason:
        reason = "TorchAir has no converter of its own for this operator"
        if not detect.has_cann() and node is not None and not _of_torch(node[2]):
            kind = OfflineError
            reason += " and asks GE's operator registry, which only CANN has"
    elif "Could not resolve the process group" in reason and not detect.has_cann():
        kind = OfflineError
    explained = kind(f"TorchAir could not convert {where}: {reason}")
    origin = node and next((found.stack_trace for found in graph_module.graph.nodes if found.name == node[1]), None)
    if origin:
        explained.add_note(f"Original traceback:\n{origin}")
    return explained


def _of_torch(target: str | None) -> bool:
    """True for an operator that comes with PyTorch: GE's registry has none of those that TorchAir lacks."""
    namespace = (target or "").removeprefix("torch.ops.").partition(".")[0]
    return namespace in ("aten", "prims", "prim", "_c10d_functional", "c10d_functional", "c10d")
