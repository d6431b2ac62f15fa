"""Run a program on the CPU as its streams would: at the same time, or in a drawn order that it allows.

The answer must not depend on when a stream gets on. Whether it does is a matter of whole steps: two steps that run at the
same time count as one after the other, either way around.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from autostream.program.execution.interleave import interleaving, refuse_deadlock
from autostream.program.execution.runner import Execution, ExecutionError, Kernel, Runner
from autostream.program.model import Semantics, StreamProgram
from autostream.program.order import Order, order_of
from autostream.program.reading.fx import read_fx


def execute(
    graph_module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    semantics: Semantics = Semantics.GE,
    seed: int | None = None,
    program: StreamProgram | None = None,
    kernels: Mapping[str, Kernel] | None = None,
) -> Execution:
    """Run a multi-stream graph with nothing but its own synchronisation; graph and inputs stay as they are.

    Args:
        graph_module: ATen graph, with or without ``torch.ops.air`` scopes.
        inputs: one value per graph input, tensors on the CPU.
        semantics: what the backend orders by itself. GE: data and control edges; capture modes: events alone.
        seed: None runs one thread per stream. A number runs one step at a time in a legal order drawn from it, always the
            same one; see `execution.interleave`.
        program: run this one, over the nodes of the graph and with its own semantics, instead of what `read_fx` reads.
        kernels: stand-ins for operators that have no CPU kernel, by target, such as ``"npu.scatter_update_.default"``.

    Raises:
        InputError: the graph is no ATen graph, the program is not of this graph, or the number of inputs is wrong.
        ExecutionError: a value was read before it was written, or an operator failed; names the operator.
        VerificationError: the program deadlocks; names the steps. (An ExecutionError is one, too.)
    """
    if program is None:
        program = read_fx(graph_module, semantics=semantics)
    order = order_of(program)
    refuse_deadlock(order)
    with _reproducible():
        runner = Runner(graph_module, program, inputs, kernels or {})
        if seed is None:
            _Threads(runner, order).run()
        else:
            for name in interleaving(order, seed):
                runner.run(name)
        return runner.result()


def serial(graph_module: fx.GraphModule, inputs: Sequence[Any], *, kernels: Mapping[str, Kernel] | None = None) -> Execution:
    """Run a graph as eager mode does, one node after the other, whatever streams it asks for: the reference for `differs`.

    Raises:
        InputError, ExecutionError: as for `execute`.
    """
    # With capture semantics every copy is a step of its own, made where it stands.
    program = read_fx(graph_module, semantics=Semantics.CAPTURE)
    with _reproducible():
        runner = Runner(graph_module, program, inputs, kernels or {})
        for step in program.steps:
            if step.stream is not None:
                runner.run(step.name)
        return runner.result()


def differs(
    graph_module: fx.GraphModule,
    inputs: Sequence[Any],
    reference: Execution,
    seeds: Iterable[int] = range(20),
    *,
    semantics: Semantics = Semantics.GE,
    program: StreamProgram | None = None,
    kernels: Mapping[str, Kernel] | None = None,
) -> int | None:
    """Return the first seed whose interleaving gives other bits than `reference` or cannot be run; None if there is none.

    Of two steps that nothing orders, each comes first for some seed of ``range(2 * number of steps)``.

    Raises:
        InputError: as for `execute`.
        VerificationError: the program deadlocks.
    """
    if program is None:
        program = read_fx(graph_module, semantics=semantics)
    for seed in seeds:
        try:
            result = execute(graph_module, inputs, seed=seed, program=program, kernels=kernels)
        except ExecutionError:
            return seed
        if not result.same_bits(reference):
            return seed
    return None


@contextmanager
def _reproducible() -> Iterator[None]:
    """Start the random numbers anew, and put the caller's generator back in the end."""
    generator = torch.default_generator
    state = generator.get_state()
    generator.manual_seed(0)
    try:
        with torch.no_grad():
            yield
    finally:
        generator.set_state(state)


class _Threads:
    """One thread per stream; each runs its steps in order and waits before a step for those the program makes it wait for."""

    def __init__(self, runner: Runner, order: Order) -> None:
        self._runner = runner
        self._order = order
        self._done = [threading.Event() for _ in order.names]
        self._errors: list[BaseException] = []

    def run(self) -> None:
        lanes: dict[str, list[int]] = {}
        for position, stream in enumerate(self._order.streams):
            lanes.setdefault(stream, []).append(position)
        threads = [threading.Thread(target=self._lane, args=(steps,), name=name, daemon=True) for name, steps in lanes.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _lane(self, positions: Sequence[int]) -> None:
        with torch.no_grad():  # holds per thread
            for position in positions:
                for source in self._order.waits[position]:
                    self._done[source].wait()
                if self._errors:
                    return
                try:
                    self._runner.run(self._order.names[position])
                except BaseException as error:
                    self._errors.append(error)
                    for event in self._done:  # nobody shall wait for what will not come
                        event.set()
                    return
                self._done[position].set()
