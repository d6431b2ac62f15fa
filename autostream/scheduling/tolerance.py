"""How much longer than the best a plan may be for the sake of fewer waits, and what that makes of the word optimal."""

from __future__ import annotations

#: How much longer a plan with fewer crossings may take, in thousandths. The same kernel scatters by 3 to 17 % from run to run
#: (`cost.measured.scaled.floor`), the sum of a hundred of them by about 1 %: a thousandth is a tenth of what a measurement
#: could tell, and of the least gain that is accepted by default.
TOLERANCE = 1


def tolerated(time: int) -> int:
    """Return the longest time, ns, that counts as no longer than `time`."""
    return time + time * TOLERANCE // 1000


def status(makespan: int, lower: int) -> str:
    """Return ``"optimal"`` for a plan that nothing can beat, ``"near-optimal"`` within what is tolerated, else ``"feasible"``."""
    return "optimal" if makespan <= lower else "near-optimal" if makespan <= tolerated(lower) else "feasible"
