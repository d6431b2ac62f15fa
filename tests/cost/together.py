"""Profiles, in the profiler's own files, of kernels that ran together and slowed each other down by known factors."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autostream.profiles import Profile, read_profile
from tests.profiles.files import ADD, HCOM, MATMUL, at, table

_EPOCH = 1_764_246_877_000_000_000
#: Shapes of `matmul` and `add`.
SHAPES = tuple(range(1, 11))


@dataclass(kw_only=True)
class Tape:
    """Kernels as they come; times are ns from the start. `noise` is the half-width by which durations scatter."""

    noise: float = 0.02
    rows: list[dict[str, str]] = field(default_factory=list)
    #: Start, duration and bytes of the tasks of collectives.
    tasks: list[tuple[int, int, int]] = field(default_factory=list)
    now: int = 0
    _draw: random.Random = field(default_factory=lambda: random.Random(7))

    def matmul(self, shape: int, start: int, duration: float, *, stream: int = 2) -> int:
        """Add a product and return when it ends."""
        m = 64 * shape
        changes = {"Input Shapes": f'"{m},2048;2048,1024"', "Output Shapes": f'"{m},1024"'}
        return self._add(MATMUL | changes, start, duration, stream)

    def add(self, shape: int, start: int, duration: float, *, stream: int = 2) -> int:
        """Add an addition and return when it ends."""
        m = 64 * shape
        return self._add(ADD | {"Input Shapes": f'"{m},1024;{m},1024"', "Output Shapes": f'"{m},1024"'}, start, duration, stream)

    def collective(self, start: int, duration: int, moves: Sequence[tuple[int, int]] = ()) -> None:
        """Add a collective, with the times (start, duration) in which it moves data; the rest it waits."""
        self.rows.append(at(HCOM, _us(start), _us(duration, 0)))
        self.tasks += [(start, duration, 0), *((begin, length, 2_064_384) for begin, length in moves)]

    def write(self, folder: Path, *, trace: bool = True) -> Path:
        """Write kernel_details.csv, and trace_view.json beside it."""
        folder.mkdir(exist_ok=True)
        (folder / "kernel_details.csv").write_text(table(self.rows))
        if trace:
            (folder / "trace_view.json").write_text(json.dumps(self._events()))
        return folder

    def read(self, folder: Path, *, trace: bool = True) -> Profile:
        """Write the files and read them."""
        return read_profile(self.write(folder, trace=trace))

    def _add(self, row: dict[str, str], start: int, duration: float, stream: int) -> int:
        taken = round(duration * self._draw.uniform(1 - self.noise, 1 + self.noise))
        self.rows.append(at(row, _us(start), _us(taken, 0), Stream_ID=str(stream)))
        return start + taken

    def _events(self) -> list[dict[str, Any]]:
        named = {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "HCCL"}}
        return [named] + [
            {
                "ph": "X",
                "pid": 7,
                "tid": 1,
                "name": "Memcpy" if size else "Notify_Wait",
                "ts": _us(start),
                "dur": duration / 1000,
                "args": {"transport type": "SDMA", "size(Byte)": size},
            }
            for start, duration, size in self.tasks
        ]


def _us(nanoseconds: int, base: int = _EPOCH) -> str:
    whole = base + nanoseconds
    return f"{whole // 1000}.{whole % 1000:03d}"


def alone(shape: int, kind: str) -> int:
    """Return how long a kernel takes alone, ns."""
    return (20_000 if kind == "matmul" else 12_000) + 2_000 * shape


def cube_beside_vector(slowdown: float, *, steps: int = 5, noise: float = 0.02, shapes: Sequence[int] = SHAPES) -> Tape:
    """Every step runs each product and addition alone, and a product beside two additions on another stream, back to back.

    While both run each goes on at 1 / slowdown of its pace alone.
    """
    tape = Tape(noise=noise)
    for _ in range(steps):
        for shape in shapes:
            for kind in ("matmul", "add"):
                tape.now = getattr(tape, kind)(shape, tape.now, alone(shape, kind)) + 1_000
            first = slowdown * alone(shape, "add")
            product = slowdown * alone(shape, "matmul")
            end = tape.add(shape, tape.now, first, stream=3)
            # The second addition starts with the first one's end; what it has left when the product ends goes on alone.
            beside = min(product - (end - tape.now), first)
            end = tape.add(shape, end, beside + (first - beside) / slowdown, stream=3)
            tape.now = max(end, tape.matmul(shape, tape.now, product)) + 5_000
    return tape


def compute_beside_collectives(
    moving: float, waiting: float = 1.0, *, steps: int = 5, noise: float = 0.02, shapes: Sequence[int] = SHAPES
) -> Tape:
    """Every step runs each kernel alone, beside a collective that waits (time x `waiting`), and one that moves (x `moving`)."""
    tape = Tape(noise=noise)
    for _ in range(steps):
        for factor, moves in ((1.0, None), (waiting, False), (moving, True)):
            begin = tape.now
            tape.now += 2_000
            for shape in shapes:
                for kind in ("matmul", "add"):
                    tape.now = getattr(tape, kind)(shape, tape.now, factor * alone(shape, kind)) + 500
            end = tape.now
            tape.now += 2_000
            if moves is not None:
                # One that waits moves its data when nothing runs beside it any more.
                first = begin if moves else end
                tape.collective(begin, tape.now - begin, [(first, tape.now - first)])
    return tape
