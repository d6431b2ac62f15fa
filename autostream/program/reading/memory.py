"""Which memory the operators of an Ascend IR graph read and write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autostream.program.kinds import kinds
from autostream.program.reading.ge_dump import GeInput, GeOp


class Memory:
    """Storages behind the tensors of a graph.

    Every operator output is a storage ``"operator:index"`` of its own, except that

    - a view's output is its input's storage,
    - GE may remove an Identity, so an output may be its own storage or that of the input in the same place,
    - an output named like an input is that input, changed in place (or its own storage, if the input is not fed),
    - `shared` names the outputs that are placed in the memory of graph inputs.

    `ops` is in topological order.
    """

    def __init__(self, ops: Sequence[GeOp], shared: Mapping[tuple[str, int], tuple[str, ...]]) -> None:
        types = {op.type for op in ops}
        self._views, self._may_alias = kinds().views.among(types), kinds().may_alias.among(types)
        self._overwrites, self._no_task = kinds().overwrites.among(types), kinds().no_task.among(types)
        self._storages: dict[tuple[str, int], tuple[str, ...]] = {}
        for op in ops:
            self._name_outputs(op)
        self._placed = {
            storage: tuple(f"{name}:0" for name in names)
            for output, names in shared.items()
            for storage in self._storages[output]
        }

    def reads(self, op: GeOp) -> tuple[str, ...]:
        """Return the storages an operator reads, each once."""
        overwritten = set(self._in_place(op).values()) if op.type in self._overwrites else ()
        return self._where([self._input(source) for port, source in enumerate(op.inputs) if port not in overwritten])

    def writes(self, op: GeOp) -> tuple[str, ...]:
        """Return the storages an operator writes, each once."""
        if op.type in self._may_alias:
            return self._where([(_own(op, index),) for index in range(max(1, len(op.output_names)))])
        return self._where([self._storages[op.name, index] for index in range(len(op.output_names))])

    def _name_outputs(self, op: GeOp) -> None:
        """Find out in which storages the outputs of an operator may lie."""
        count, name = max(1, len(op.output_names)), op.name
        if op.type in self._views:
            whole = self._input(op.inputs[0] if op.inputs else None)
            found = [whole or (_own(op, index),) for index in range(count)]
        elif op.type in self._may_alias:
            sources = (*op.inputs, *[None] * (count - len(op.inputs)))
            found = [tuple(dict.fromkeys((_own(op, index), *self._input(sources[index])))) for index in range(count)]
        else:
            ports = self._in_place(op)
            given = [self._input(op.inputs[ports[index]]) if index in ports else () for index in range(count)]
            found = [storages or (_own(op, index),) for index, storages in enumerate(given)]
        for index, storages in enumerate(found):
            self._storages[name, index] = storages

    def _input(self, source: GeInput | None) -> tuple[str, ...]:
        if source is None:
            return ()
        found = self._storages.get(source)
        return (f"{source.producer}:{source.output}",) if found is None else found

    def _where(self, groups: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        storages = groups[0] if len(groups) == 1 else tuple(dict.fromkeys([storage for group in groups for storage in group]))
        if self._placed.keys().isdisjoint(storages):
            return storages
        return tuple(dict.fromkeys([place for storage in storages for place in self._placed.get(storage, (storage,))]))

    def _in_place(self, op: GeOp) -> Mapping[int, int]:
        """Return output index -> input index of the outputs that are inputs changed in place."""
        # Data, for one, has an input port of its own that means something else.
        if op.type in self._no_task or set(op.output_names).isdisjoint(op.input_names):
            return {}
        ports = {name: port for port, name in enumerate(op.input_names) if name and port < len(op.inputs)}
        return {index: ports[name] for index, name in enumerate(op.output_names) if name in ports}


def _own(op: GeOp, index: int) -> str:
    return f"{op.name}:{index}"
