"""Multi-stream programs as people write them, in pairs: one with a fault, one near miss without it.

Every function is a forward of three 8 x 8 tensors. Fused attention, caches and collectives are left to other tests: what is at
fault here is the synchronisation, not the operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autostream import offline

offline.activate()  # raises where torch_npu cannot be had: import this module only where it can

import torch  # noqa: E402
import torchair  # noqa: E402
import torchair.ops._tagged_event  # noqa: E402
from torch import Tensor, nn  # noqa: E402

Forward = Callable[..., Any]


class Model(nn.Module):
    """Runs one of the functions below."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Any:
        return self.function(x, y, z)


def inputs() -> tuple[Tensor, ...]:
    """Three tensors of their own."""
    return torch.ones(8, 8), torch.ones(8, 8), torch.ones(8, 8)


def scope(label: str) -> Any:
    """A stream scope in the public spelling."""
    return torchair.scope.npu_stream_switch(label, 3)


def record(tag: str) -> None:
    torch.ops.air.tagged_event_record(tag, False)


def wait(tag: str) -> None:
    torch.ops.air.tagged_event_wait(tag, False)


def guard(tensor: Tensor, label: str) -> None:
    torch.ops.air.record_tagged_stream_(tensor, label)


# -- max-autotune: air.record, air.wait, npu_wait_tensor -----------------------------------------------------------------


def doc_example(x: Tensor, y: Tensor, z: Tensor) -> Any:
    """The documented example: the result of npu_wait_tensor is dropped, and z is rebound for the main stream too."""
    total = torch.add(x, y)
    with scope("1"):
        torchair.scope.npu_wait_tensor(z, total)
        side = torch.mm(z, x)
    return side, torch.mm(z, y)


def doc_example_kept_apart(x: Tensor, y: Tensor, z: Tensor) -> Any:
    total = torch.add(x, y)
    main = torch.mm(z, y)
    with scope("1"):
        torchair.scope.npu_wait_tensor(z, total)
        side = torch.mm(z, x)
    return side, main


def read_beside_write(x: Tensor, y: Tensor, z: Tensor) -> Any:
    with scope("1"):
        old = torch.relu(z)
    z.copy_(torch.mm(x, y))
    return old


def read_before_write(x: Tensor, y: Tensor, z: Tensor) -> Any:
    with scope("1"):
        old = torch.relu(z)
    torchair.ops.wait([old])
    z.copy_(torch.mm(x, y))
    return old


def input_to_input_beside_read(x: Tensor, y: Tensor, z: Tensor) -> Any:
    with scope("1"):
        old = torch.relu(z)
    z.copy_(x)
    return old + y


def input_to_input_before_read(x: Tensor, y: Tensor, z: Tensor) -> Any:
    z.copy_(x)
    with scope("1"):
        new = torch.relu(z)
    return new + y


def wait_on_const(x: Tensor, y: Tensor, z: Tensor) -> Any:
    """The converter of a sum with a number emits a Const first: the wait lands on that."""
    total = torch.add(x, y)
    with scope("1"):
        torchair.ops.wait([total])
        side = torch.ops.aten.add.Scalar(z, 3)
    return total, side


def wait_on_task(x: Tensor, y: Tensor, z: Tensor) -> Any:
    total = torch.add(x, y)
    with scope("1"):
        torchair.ops.wait([total])
        side = torch.mm(z, z)
    return total, side


def trailing(x: Tensor, y: Tensor, z: Tensor) -> Any:
    total = torch.add(x, y)
    with scope("1"):
        side = torch.relu(z)
        torchair.ops.wait([total])
    return total, side


def record_after_view(x: Tensor, y: Tensor, z: Tensor) -> Any:
    with scope("1"):
        side = torch.relu(x)
        flat = side.view(64)
        mark = torchair.ops.record()
    torchair.ops.wait([mark])
    return flat, torch.mm(y, z)


def record_before_view(x: Tensor, y: Tensor, z: Tensor) -> Any:
    with scope("1"):
        side = torch.relu(x)
        mark = torchair.ops.record()
        flat = side.view(64)
    torchair.ops.wait([mark])
    return flat, torch.mm(y, z)


def empty_record(x: Tensor, y: Tensor, z: Tensor) -> Any:
    with scope("1"):
        mark = torchair.ops.record()
        side = torch.relu(x)
    torchair.ops.wait([mark])
    return side, torch.mm(y, z)


def nested_record(x: Tensor, y: Tensor, z: Tensor) -> Any:
    with scope("1"):
        side = torch.relu(x)
        with scope("2"):
            other = torch.relu(y)
            mark = torchair.ops.record()
    torchair.ops.wait([mark])
    return side, other, torch.mm(y, z)


def flat_record(x: Tensor, y: Tensor, z: Tensor) -> Any:
    with scope("1"):
        side = torch.relu(x)
    with scope("2"):
        other = torch.relu(y)
        mark = torchair.ops.record()
    torchair.ops.wait([mark])
    return side, other, torch.mm(y, z)


def waits_for_data_anyway(x: Tensor, y: Tensor, z: Tensor) -> Any:
    total = torch.add(x, y)
    with scope("1"):
        torchair.ops.wait([total])
        return torch.mm(total, z)


def two_waits_one_implied(x: Tensor, y: Tensor, z: Tensor) -> Any:
    first = torch.add(x, y)
    second = torch.relu(first)
    with scope("1"):
        torchair.ops.wait([first, second])
        side = torch.mm(z, z)
    return second, side


# -- capture modes: tagged events ----------------------------------------------------------------------------------------


def forked_and_joined(x: Tensor, y: Tensor, z: Tensor) -> Any:
    total = torch.add(x, y)
    record("fork")
    with scope("1"):
        wait("fork")
        side = torch.mm(total, z)
        guard(total, "1")
        record("join")
    main = torch.relu(total)
    wait("join")
    return side + main


def no_event(x: Tensor, y: Tensor, z: Tensor) -> Any:
    total = torch.add(x, y)
    record("start")
    with scope("1"):
        side = torch.mm(total, z)
        record("join")
    wait("join")
    return side + total


def not_joined(x: Tensor, y: Tensor, z: Tensor) -> Any:
    total = torch.add(x, y)
    record("fork")
    with scope("1"):
        wait("fork")
        z.copy_(torch.mm(x, y))
    return torch.relu(total)


def not_forked(x: Tensor, y: Tensor, z: Tensor) -> Any:
    with scope("1"):
        side = torch.mm(x, y)
        record("join")
    main = torch.relu(z)
    wait("join")
    return side + main


def forked_at_the_start(x: Tensor, y: Tensor, z: Tensor) -> Any:
    record("fork")
    with scope("1"):
        wait("fork")
        side = torch.mm(x, y)
        record("join")
    main = torch.relu(z)
    wait("join")
    return side + main


def never_recorded(x: Tensor, y: Tensor, z: Tensor) -> Any:
    wait("nobody")
    return forked_and_joined(x, y, z)


def recorded_later(x: Tensor, y: Tensor, z: Tensor) -> Any:
    wait("late")
    out = forked_and_joined(x, y, z)
    record("late")
    return out


def recorded_twice(x: Tensor, y: Tensor, z: Tensor) -> Any:
    record("fork")
    return forked_and_joined(x, y, z)


def never_awaited(x: Tensor, y: Tensor, z: Tensor) -> Any:
    record("unheard")
    return forked_and_joined(x, y, z)


def awaited_on_two_streams(x: Tensor, y: Tensor, z: Tensor) -> Any:
    total = torch.add(x, y)
    record("fork")
    with scope("1"):
        wait("fork")
        one = torch.mm(x, z)
        record("join 1")
    with scope("2"):
        wait("fork")
        two = torch.mm(y, z)
        record("join 2")
    wait("join 1")
    wait("join 2")
    return one + two + total


def an_event_for_each_stream(x: Tensor, y: Tensor, z: Tensor) -> Any:
    total = torch.add(x, y)
    record("fork 1")
    record("fork 2")
    with scope("1"):
        wait("fork 1")
        one = torch.mm(x, z)
        record("join 1")
    with scope("2"):
        wait("fork 2")
        two = torch.mm(y, z)
        record("join 2")
    wait("join 1")
    wait("join 2")
    return one + two + total


def stream_as_event(x: Tensor, y: Tensor, z: Tensor) -> Any:
    out = forked_and_joined(x, y, z)
    wait("1")
    return torch.relu(out)


def guard_on_own_stream(x: Tensor, y: Tensor, z: Tensor) -> Any:
    total = torch.add(x, y)
    guard(total, "default")
    record("fork")
    with scope("1"):
        wait("fork")
        side = torch.mm(total, z)
        guard(total, "1")
        record("join")
    wait("join")
    return side + total


def guard_on_copy(x: Tensor, y: Tensor, z: Tensor) -> Any:
    total = torch.add(x, y)
    record("fork")
    with scope("1"):
        wait("fork")
        side = torch.mm(total, z)
        record("join")
    copied = total.clone()
    guard(copied, "1")
    wait("join")
    return side + copied


def guard_without_use(x: Tensor, y: Tensor, z: Tensor) -> Any:
    unrelated = torch.relu(z)
    guard(unrelated, "1")
    return forked_and_joined(x, y, z) + unrelated


def three_regions_not_joined(x: Tensor, y: Tensor, z: Tensor) -> Any:
    record("fork")
    with scope("as1"):
        wait("fork")
        one = torch.mm(x, y)
        record("join 1")
    wait("join 1")
    with scope("as1"):
        two = torch.relu(y)
        record("join 2")
    wait("join 2")
    main = one + two
    with scope("as1"):
        z.copy_(torch.mm(x, z))
    return main


def three_regions_joined(x: Tensor, y: Tensor, z: Tensor) -> Any:
    record("fork")
    with scope("as1"):
        wait("fork")
        one = torch.mm(x, y)
        guard(one, "default")
    with scope("as1"):
        two = torch.relu(y)
        guard(two, "default")
        record("join 2")
    wait("join 2")
    main = one + two
    with scope("as1"):
        z.copy_(torch.mm(x, z))
        record("join 3")
    wait("join 3")
    return main


def used_again_too_early(x: Tensor, y: Tensor, z: Tensor) -> Any:
    """The memory of `one` goes back to stream 1 while the main stream may still read it."""
    record("fork")
    with scope("1"):
        wait("fork")
        one = torch.mm(x, y)
        record("ready")
    wait("ready")
    main = torch.relu(one)
    with scope("1"):
        two = torch.mm(x, z)
        record("join")
    wait("join")
    return main + two


def guarded(x: Tensor, y: Tensor, z: Tensor) -> Any:
    record("fork")
    with scope("1"):
        wait("fork")
        one = torch.mm(x, y)
        guard(one, "default")
        record("ready")
    wait("ready")
    main = torch.relu(one)
    with scope("1"):
        two = torch.mm(x, z)
        record("join")
    wait("join")
    return main + two
