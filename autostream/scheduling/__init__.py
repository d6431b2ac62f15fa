"""Where and when each operator runs: the problem, bounds on its answer, and the ways to solve it."""

from autostream.scheduling.bounds import critical_path, lower_bound
from autostream.scheduling.build import build_problem
from autostream.scheduling.feasibility import check
from autostream.scheduling.problem import HCCL, MAIN, Mode, Placement, Precedence, Problem, Schedule, Strategy, Task
from autostream.scheduling.replay import decode
from autostream.scheduling.strategies import strategy

__all__ = [
    "HCCL",
    "MAIN",
    "Mode",
    "Placement",
    "Precedence",
    "Problem",
    "Schedule",
    "Strategy",
    "Task",
    "build_problem",
    "check",
    "critical_path",
    "decode",
    "lower_bound",
    "strategy",
]
