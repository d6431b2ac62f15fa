"""Which way of solving the options ask for."""

from __future__ import annotations

from autostream.options import Options
from autostream.scheduling.lists.greedy import Greedy
from autostream.scheduling.lists.serial import Serial
from autostream.scheduling.problem import Strategy
from autostream.scheduling.regions.divided import Divided


def strategy(options: Options) -> Strategy:
    """Return the strategy that `options` name; ``auto`` and ``cpsat`` divide and solve."""
    if options.strategy == "serial":
        return Serial()
    if options.strategy == "greedy":
        return Greedy()
    return Divided(budget=options.solver_budget, max_tasks=options.solver_max_tasks)
