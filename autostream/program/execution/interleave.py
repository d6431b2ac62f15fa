"""Legal orders of a program's steps, drawn to be as unlike the order of emission as the waits allow."""

from __future__ import annotations

import random
from collections.abc import Callable

from autostream.errors import VerificationError
from autostream.program.order import Order, find_cycle, predecessors


def refuse_deadlock(order: Order) -> None:
    """Check that the steps can run at all, each stream in its own order.

    Raises:
        VerificationError: some steps wait for each other; their names are in the message.
    """
    cycle = [order.names[position] for position in find_cycle(predecessors(order, stream_order=True))]
    if cycle:
        raise VerificationError(f"the program deadlocks: these steps wait for each other: {' -> '.join((*cycle, cycle[0]))}")


def interleaving(order: Order, seed: int) -> list[str]:
    """Return all steps in an order that the waits and the streams allow; the same seed draws the same order.

    What the engine may remove has no place on its stream. By seed, of n steps:

    - odd: one step is held back until nothing else can run; 2 * n seeds in a row hold back every step once, so of two steps
      that nothing orders, each comes first for some of them.
    - 0, 4, 8 ...: any step that can run is as likely as any other.
    - 2, 6, 10 ...: the streams are ranked, and the first one that can run does: one is as far ahead as it can be.

    Raises:
        VerificationError: the steps wait for each other.
    """
    refuse_deadlock(order)
    before = predecessors(order, stream_order=True, vanishing=False)
    after: list[list[int]] = [[] for _ in before]
    for position, sources in enumerate(before):
        for source in sources:
            after[source].append(position)
    missing = [len(sources) for sources in before]
    ready = [position for position, count in enumerate(missing) if count == 0]
    choose = _choice(order, seed)
    drawn: list[str] = []
    while ready:
        chosen = choose(ready)
        ready.remove(chosen)
        drawn.append(order.names[chosen])
        for position in after[chosen]:
            missing[position] -= 1
            if missing[position] == 0:
                ready.append(position)
    return drawn


def _choice(order: Order, seed: int) -> Callable[[list[int]], int]:
    """Return what picks the next one of the steps that can run."""
    chooser = random.Random(seed)
    if seed % 4 == 0:
        return chooser.choice
    count = len(order.names)
    # One shuffle for all seeds, so that a few of them already hold back steps from all over the program.
    held = random.Random(count).sample(range(count), count)[seed // 2 % count] if seed % 2 and count else None
    rank = {stream: chooser.random() for stream in dict.fromkeys(order.streams)}
    return lambda ready: min(ready, key=lambda position: (position == held, rank[order.streams[position]], position))
