"""When the tasks of a plan run, whoever says so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """When each task runs, and in which mode."""

    mode: tuple[int, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]

    @property
    def makespan(self) -> int:
        """When the last task ends."""
        return max(self.end, default=0)

    @property
    def rank(self) -> int:
        """Smaller is better."""
        return self.makespan
