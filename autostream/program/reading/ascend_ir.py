"""Read a program back from the Ascend IR that TorchAir emits: what GE is really given, whatever was meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from autostream.program.kinds import ge_stream, kinds
from autostream.program.model import Edge, EdgeKind, Lost, Semantics, Step, StreamProgram
from autostream.program.order import linear_extension
from autostream.program.reading.ge_dump import GeOp, load_ops
from autostream.program.reading.memory import Memory


def read_ascend_ir(
    source: bytes | str | Path, *, in_order: bool | None = None, written_back: Mapping[str, tuple[str, ...]] | None = None
) -> StreamProgram:
    """Return the program of an Ascend IR graph: one step per operator, in listing order.

    A listing that is not topological is brought into topological order first, as GE would, moving as little as possible.

    Args:
        source: a serialised GraphDef, its text form, TorchAir's graph dump (.pbtxt), or the path of a file with one of them.
        in_order: True if GE keeps the order of one stream (StableRDFS). A graph does not say; None counts as False.
        written_back: FX values (``"node.position"``) that GE writes straight into the memory of graph inputs, with the names
            of these inputs. The graph does not say this either; `reading.fx.written_back` finds it in the FX graph.

    Raises:
        InputError: the source cannot be read or is no Ascend IR; names it, what was expected and the parser's complaint.
    """
    return program_of(load_ops(source, described=False), in_order=in_order, written_back=written_back)


def program_of(
    ops: Sequence[GeOp], *, in_order: bool | None = None, written_back: Mapping[str, tuple[str, ...]] | None = None
) -> StreamProgram:
    """Return the program of the operators of an Ascend IR graph; see `read_ascend_ir`."""
    producers = {op.name: _producers(op) for op in ops}
    ops = _topological(ops, producers)
    sources = _sources(ops, producers)
    constant = _constant(ops, producers)
    streams = {op.name: None if op.name in constant else ge_stream(op.type, op.label) for op in ops}
    memory = Memory(ops, _shared(ops, written_back or {}))
    steps = []
    for op in ops:
        name, kind, stream = op.name, op.type, streams[op.name]
        if stream is None:
            steps.append(Step(name, kind, None, source=sources[name]))
            continue
        reads, writes = memory.reads(op), memory.writes(op)
        steps.append(Step(name, kind, stream, reads=reads, writes=writes, source=sources[name], cores=op.cores))
    return StreamProgram(
        semantics=Semantics.GE,
        steps=tuple(steps),
        edges=tuple(_edges(ops, producers)),
        in_order=bool(in_order),
        lost=tuple(_lost(ops, producers, streams, constant)),
    )


_DATA = EdgeKind.DATA
#: By operator, those whose data it reads.
_Producers = Mapping[str, tuple[str, ...]]


def _producers(op: GeOp) -> tuple[str, ...]:
    """Return the operators whose data `op` reads, each once."""
    return tuple(dict.fromkeys([source.producer for source in op.inputs if source is not None]))


def _topological(ops: Sequence[GeOp], producers: _Producers) -> tuple[GeOp, ...]:
    """Return the operators in the topological order closest to the listing; a cyclic graph stays as listed."""
    index = {op.name: position for position, op in enumerate(ops)}
    before = [[index[name] for name in (*producers[op.name], *op.controls) if name in index] for op in ops]
    order = linear_extension(before)
    return tuple(ops[position] for position in order) if len(order) == len(ops) else tuple(ops)


def _constant(ops: Sequence[GeOp], producers: _Producers) -> set[str]:
    """Return the operators that are constants or are computed from constants alone while GE compiles: they emit no task."""
    types = {op.type for op in ops}
    constants, folded = kinds().constants.among(types), kinds().folded.among(types)
    constant: set[str] = set()
    for op in ops:
        read = producers[op.name]
        if op.type in constants or (op.type in folded and read and constant.issuperset(read)):
            constant.add(op.name)
    return constant


def _edges(ops: Sequence[GeOp], producers: _Producers) -> Iterator[Edge]:
    for op in ops:
        for name in producers[op.name]:
            yield Edge(name, op.name, _DATA)
        for name in op.controls:
            if name in producers:
                yield Edge(name, op.name, EdgeKind.CONTROL)


def _sources(ops: Sequence[GeOp], producers: _Producers) -> dict[str, str]:
    """Return the FX node each operator was emitted for.

    TorchAir names the node on the operator that produces its value. The operators a converter emits on the way have no name:
    they belong to the next named operator that depends on them. Inputs and constants belong to none.
    """
    sources = {op.name: op.fx_node for op in ops}
    unnamed: set[str] = set()
    for op in ops:
        node = sources[op.name]
        if not node:
            if op.inputs:
                unnamed.add(op.name)
            continue
        stack = [op.name]
        while stack:
            for name in producers[stack.pop()]:
                if name in unnamed:
                    sources[name] = node
                    unnamed.remove(name)
                    stack.append(name)
    return sources


def _shared(ops: Sequence[GeOp], written_back: Mapping[str, tuple[str, ...]]) -> dict[tuple[str, int], tuple[str, ...]]:
    """Return the outputs that GE places in the memory of graph inputs, with the operators of these inputs."""
    outputs = {value: (op.name, index) for op in ops for index, value in enumerate(op.fx_values) if value}
    inputs = {op.name for op in ops if op.type == "Data"}
    # TorchAir drops no-op operators before it converts: their values are not in the graph, and nothing writes for them.
    return {
        outputs[value]: tuple(name for name in names if name in inputs)
        for value, names in written_back.items()
        if value in outputs and not inputs.isdisjoint(names)
    }


def _lost(ops: Sequence[GeOp], producers: _Producers, streams: Mapping[str, str | None], constant: set[str]) -> Iterator[Lost]:
    """Find control edges that order nothing because one end emits no task."""
    by_name = {op.name: op for op in ops}
    for op in ops:
        if not op.controls or op.type in kinds().sinks:
            continue
        for name in op.controls:
            producer = by_name.get(name)
            if producer is None:
                yield Lost(
                    kind="dangling-wait",
                    step=op.name,
                    before=name,
                    explanation=f"waits for {name!r}, which the graph no longer holds",
                )
            elif streams[op.name] is None:
                kind = "wait-on-const" if op.name in constant or not producers[op.name] else "wait-on-view"
                yield Lost(
                    kind=kind,
                    step=op.name,
                    before=name,
                    explanation=f"the wait for {name!r} landed on {op.name!r} ({op.type}), which emits no task; nothing waits",
                )
            elif streams[name] is None:
                kind = "wait-on-input" if name in constant or not producers[name] else "record-after-view"
                yield Lost(
                    kind=kind,
                    step=op.name,
                    before=name,
                    explanation=f"waits for {name!r} ({producer.type}), which emits no task; there is nothing to wait for",
                )
