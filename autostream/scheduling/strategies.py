"""Which way of solving the options ask for."""

from __future__ import annotations

from autostream.options import Options
from autostream.scheduling.cpsat import CpSat
from autostream.scheduling.greedy import Greedy
from autostream.scheduling.problem import Strategy
from autostream.scheduling.serial import Serial


def strategy(options: Options) -> Strategy:
    """Return the strategy that `options` name; ``auto`` is the solver where the problem is small enough, else greedy."""
    if options.strategy == "serial":
        return Serial()
    if options.strategy == "greedy":
        return Greedy()
    return CpSat(budget=options.solver_budget, max_tasks=options.solver_max_tasks)
