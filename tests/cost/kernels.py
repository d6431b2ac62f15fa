"""Kernels as a profile would show the operators of `tests.cost.build`."""

from __future__ import annotations

from collections.abc import Iterable

from autostream.profiles import Core, Kernel, Profile, Tensor


def tensor(*shape: int, dtype: str = "bfloat16", layout: str = "ND") -> Tensor:
    """Return an operand."""
    return Tensor(shape=shape, dtype=dtype, format=layout)


def kernel(
    kind: str,
    inputs: Iterable[Tensor],
    outputs: Iterable[Tensor],
    duration: int,
    *,
    start: int = 0,
    name: str = "",
    core: Core = Core.AI_VECTOR_CORE,
    blocks: int = 0,
    step: int | None = None,
) -> Kernel:
    """Return one kernel."""
    return Kernel(
        name=name or kind,
        type=kind,
        core=core,
        start=start,
        duration=duration,
        blocks=blocks,
        step=step,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )


def matmul(
    m: int, n: int, k: int, duration: int, *, start: int = 0, name: str = "", step: int | None = None, blocks: int = 24
) -> Kernel:
    """Return a product whose second factor is stored transposed, as weights of `linear` are."""
    return kernel(
        "MatMulV3",
        (tensor(m, k), tensor(n, k)),
        (tensor(m, n),),
        duration,
        start=start,
        name=name,
        core=Core.AI_CORE,
        step=step,
        blocks=blocks,
    )


def add(rows: int, columns: int, duration: int, *, start: int = 0, name: str = "") -> Kernel:
    """Return an addition of two tensors with a side of 1 that a graph does not have."""
    shape = tensor(1, rows, columns)
    return kernel("Add", (shape, shape), (shape,), duration, start=start, name=name, blocks=40)


def profile(*kernels: Kernel, digest: str = "0123456789abcdef") -> Profile:
    """Return a profile of kernels."""
    return Profile(kernels=tuple(sorted(kernels, key=lambda one: one.start)), columns=(), rows=len(kernels), digest=digest)
