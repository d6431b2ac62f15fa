"""From an Ascend IR dump to the dependency graph that is scheduled: operators under the names of GE's nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from autostream.cost.measured.kernels import find_kernel, op_from_kernel
from autostream.dumps.tensors import Place, inputs_of, outputs_of, tensors_of
from autostream.errors import InputError
from autostream.graph.aliases import Access
from autostream.graph.hazards import Edges, add_chain, add_storage_hazards
from autostream.graph.model import Op, OpGraph, Storage, TensorSpec, Unit, Why
from autostream.graph.units import classify
from autostream.program.kinds import is_collective, kinds
from autostream.program.model import StreamProgram
from autostream.program.order import find_cycle
from autostream.program.reading.ge_dump import GeOp

#: Types whose memory is there before the graph runs.
_GIVEN = ("Data", "RefData", "Variable", "Const", "Constant", "ConstPlaceHolder", "FileConstant")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpGraph:
    """A dump as a graph: `types` are the GE types by node, `unpriced` says by node why no price can rest on its shapes."""

    graph: OpGraph
    types: Mapping[str, str]
    unpriced: Mapping[str, str]


def graph_of(ops: Sequence[GeOp], program: StreamProgram) -> DumpGraph:
    """Return the graph of a dump.

    Args:
        ops: its operators.
        program: what was read from it: it has the operators in topological order, their streams and what they read and write.

    Raises:
        InputError: the nodes wait for each other.
    """
    by_name = {op.name: op for op in ops}
    ordered = [by_name[step.name] for step in program.steps if step.kind not in kinds().sinks]
    tensors = tensors_of(ordered)
    _refuse_cycle(ordered)
    reads = {step.name: (step.reads, step.writes) for step in program.steps}
    streams = {step.name: step.stream for step in program.steps}
    folded = _folded(ordered, streams, tensors)
    unpriced: dict[str, str] = {}
    made: dict[str, Op] = {}
    for index, op in enumerate(ordered):
        free = streams[op.name] is None or op.name in folded
        found, reason = (_view(op, tensors), "") if free else _priced(op, tensors, streams)
        if reason:
            unpriced[op.name] = reason
        made[op.name] = _placed(found, op, index, *reads[op.name])
    edges = _edges(ordered, made, program)
    dag = nx.DiGraph()
    dag.add_nodes_from(made)
    dag.add_edges_from((before, after, {"why": why}) for before, after, why in edges.named())
    results = (source.producer for op in ops if op.type in kinds().sinks for source in op.inputs if source is not None)
    graph = OpGraph(
        dag=dag,
        ops=made,
        storages=_storages(ordered, program, tensors),
        outputs=tuple(dict.fromkeys(name for name in results if name in made)),
        refusals=tuple(_refusals(ordered)),
    )
    return DumpGraph(graph=graph, types={op.name: op.type for op in ordered}, unpriced=unpriced)


def _refuse_cycle(ops: Sequence[GeOp]) -> None:
    """Refuse a graph that cannot be brought into topological order."""
    index = {op.name: position for position, op in enumerate(ops)}
    before = [
        [index[name] for name in (*(one.producer for one in op.inputs if one is not None), *op.controls) if name in index]
        for op in ops
    ]
    cycle = [ops[position].name for position in find_cycle(before)]
    if cycle:
        raise InputError(f"the dump is no graph that can run: its nodes wait for each other: {' -> '.join((*cycle, cycle[0]))}")


def _folded(ops: Sequence[GeOp], streams: Mapping[str, str | None], tensors: Mapping[Place, TensorSpec]) -> set[str]:
    """Return the nodes that take no time although they stand for a task as long as GE has not worked on the graph.

    GE computes while it compiles what asks for a shape that is known, and what rests on that; it folds the Transpose of a weight
    into the products that read it.
    """
    by_name = {op.name: op for op in ops}
    users: dict[str, list[GeOp]] = {}
    for op in ops:
        for source in op.inputs:
            if source is not None:
                users.setdefault(source.producer, []).append(op)

    def multiplies(op: GeOp) -> bool:
        kernel = find_kernel(op.type)
        return kernel is not None and kernel.multiplies

    folded: set[str] = set()
    for op in ops:
        sources = [source for source in op.inputs if source is not None]
        before = [by_name[source.producer] for source in sources]
        if op.type in kinds().shapes:
            computed = all((source.producer, source.output) in tensors for source in sources)
        else:
            known = (one.name in folded or one.type in kinds().constants for one in before)
            computed = op.type in kinds().folded and bool(before) and all(known)
        weight = op.type == "Transpose" and bool(before) and before[0].type in _GIVEN and op.name in users
        if computed or (weight and all(map(multiplies, users[op.name]))):
            folded.add(op.name)
    return {name for name in folded if streams[name] is not None}


# ---- operators ----


def _view(op: GeOp, tensors: Mapping[Place, TensorSpec]) -> Op:
    return _op(op, f"ge.{op.type}", Unit.FREE, tensors)


def _priced(op: GeOp, tensors: Mapping[Place, TensorSpec], streams: Mapping[str, str | None]) -> tuple[Op, str]:
    """Return the operator that stands for a node where costs are asked for, and why none does (empty if one does)."""
    if is_collective(op.type):
        target = next((target for types, target in kinds().priced_as if op.type in types), None)
        info = classify(target) if target is not None else None
        if target is not None and info is not None:
            return _op(op, target, info.unit, tensors), ""
        return _op(op, f"ge.{op.type}", Unit.COMM, tensors, known=False), "the collective is not in the table"
    kernel = find_kernel(op.type)
    if kernel is None:
        return _op(op, f"ge.{op.type}", Unit.MIXED, tensors, known=False), "the type is not in the table of kernels"
    inputs, outputs = inputs_of(op, tensors), outputs_of(op, tensors)
    # An unknown shape of a constant is that of a scalar or a filler for an input that is not there.
    lacking = [
        source.producer
        for source, spec in zip(op.inputs, inputs, strict=True)
        if source is not None and spec is None and (streams[source.producer] is not None)
    ]
    found = None
    if not lacking:
        found = op_from_kernel(
            op.type,
            [spec.shape if spec is not None else None for spec in inputs],
            [spec.dtype if spec is not None else "" for spec in inputs],
            [spec.shape if spec is not None else None for spec in outputs],
            [spec.dtype if spec is not None else "" for spec in outputs],
        )
    if found is None:
        reason = f"the dump does not tell the shape of {lacking[0]!r}" if lacking else "its shapes do not fit its type"
        return _op(op, f"ge.{op.type}", kernel.unit, tensors, known=False), reason
    return found, ""


def _op(op: GeOp, target: str, unit: Unit, tensors: Mapping[Place, TensorSpec], *, known: bool = True) -> Op:
    inputs = tuple(spec for spec in inputs_of(op, tensors) if spec is not None)
    outputs = tuple(spec for spec in outputs_of(op, tensors) if spec is not None)
    task = unit is not Unit.FREE
    return Op(
        name=op.name,
        target=target,
        unit=unit,
        position=0,
        inputs=inputs,
        outputs=outputs,
        flops=0,
        bytes_read=sum(spec.nbytes for spec in inputs) if task else 0,
        bytes_written=sum(spec.nbytes for spec in outputs) if task else 0,
        known=known,
        in_kernel=task and is_collective(op.type) and op.type not in kinds().hccl,
    )


def _placed(found: Op, op: GeOp, index: int, reads: tuple[str, ...], writes: tuple[str, ...]) -> Op:
    """Return the operator with what belongs to the node, not to its kernel."""
    return found._replace(
        name=op.name,
        position=index,
        reads=reads,
        writes=writes,
        source_line=f"FX node {op.fx_node}" if op.fx_node else "",
        scope=(("_user_stream_label", op.label),) if op.label and found.unit is not Unit.FREE else (),
        group=op.group or None,
        group_size=op.group_size,
    )


# ---- edges ----


def _edges(ops: Sequence[GeOp], made: Mapping[str, Op], program: StreamProgram) -> Edges:
    edges = Edges([op.name for op in ops])
    at = edges.position
    tasks = {name for name, op in made.items() if op.unit is not Unit.FREE}
    producers: list[set[int]] = []
    for position, op in enumerate(ops):
        behind: set[int] = set()
        for source in op.inputs:
            if source is not None and source.producer in at:
                before = at[source.producer]
                edges.add(before, position, Why.DATA)
                behind |= {before} if source.producer in tasks else producers[before]
        producers.append(behind)
        for name in op.controls:  # one end without a task: it orders nothing
            if name in tasks and op.name in tasks:
                edges.add(at[name], position, Why.USER)
    accesses = {step.name: _access(step.name, step.reads, step.writes) for step in program.steps if step.name in at}
    add_storage_hazards(edges, accesses, producers)
    add_chain(edges, [at[op.name] for op in ops if op.name in tasks and is_collective(op.type)], Why.COLLECTIVE)
    return edges


def _access(name: str, reads: tuple[str, ...], writes: tuple[str, ...]) -> Access:
    own = {storage for storage in writes if storage.rpartition(":")[0] == name}
    return Access(
        reads=reads,
        mutates=tuple(storage for storage in writes if storage not in own),
        creates=tuple(storage for storage in writes if storage in own),
    )


def _storages(ops: Sequence[GeOp], program: StreamProgram, tensors: Mapping[Place, TensorSpec]) -> dict[str, Storage]:
    """Return the storages that steps touch; one of unknown size counts as empty."""
    types = {op.name: op.type for op in ops}
    found: dict[str, Storage] = {}
    for step in program.steps:
        for name in (*step.reads, *step.writes):
            if name not in found:
                owner, _, index = name.rpartition(":")
                spec = tensors.get((owner, int(index)))
                kind = "input" if types.get(owner) in _GIVEN else "intermediate"
                found[name] = Storage(name=name, nbytes=spec.nbytes if spec else 0, kind=kind)
    return found


def _refusals(ops: Sequence[GeOp]) -> Iterator[str]:
    inner = next((op for op in ops if op.type in kinds().control_flow), None)
    if inner is not None:
        yield f"unsupported: node {inner.name!r} ({inner.type}) runs another graph, which the dump of this one does not hold"
    dynamic = next((op for op in ops if any(tensor.dynamic for tensor in op.tensors)), None)
    if dynamic is not None:
        yield f"dynamic-shape: the shape of node {dynamic.name!r} ({dynamic.type}) depends on the inputs of a run"
