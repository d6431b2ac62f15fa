"""Where and when each operator runs: the problem, bounds on its answer, and the ways to solve it."""

from autostream.scheduling.bounds.lower import Bound, explained_bound, lower_bound
from autostream.scheduling.build import build_problem
from autostream.scheduling.capped import Capped, crossings
from autostream.scheduling.feasibility import check
from autostream.scheduling.machine.paths import critical_path
from autostream.scheduling.machine.replay import decode
from autostream.scheduling.problem import HCCL, MAIN, Mode, Placement, Precedence, Problem, Region, Schedule, Strategy, Task
from autostream.scheduling.strategies import strategy

__all__ = [
    "HCCL",
    "MAIN",
    "Bound",
    "Capped",
    "Mode",
    "Placement",
    "Precedence",
    "Problem",
    "Region",
    "Schedule",
    "Strategy",
    "Task",
    "build_problem",
    "check",
    "critical_path",
    "crossings",
    "decode",
    "explained_bound",
    "lower_bound",
    "strategy",
]
