"""Stages by dynamic programming, after IOS (Ding et al., 2021): the graph is cut into stages, each run as parallel groups.

A stage is an *ending* of what is left: a set of operators that nothing else left depends on. Its connected groups run side by
side, one stream each. The DP finds the cheapest sequence of stages over all endings with at most three operators a group and
eight groups, as in the paper's pruning. To end in time the DP works on blocks of the graph: it looks at a limited number of
endings a state and states a block; what is beyond that is one operator a stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autostream.scheduling.baselines.dag import Assignment, Dag

_GROUP, _GROUPS = 3, 8
#: Operators of a block, states and endings that the DP looks at, the largest number of operators that may end a stage together.
_BLOCK, _STATES, _ENDINGS = 24, 400, 60

#: A chain of tasks that no rule would part.
_Chain = tuple[int, ...]


def ios(dag: Dag) -> Assignment:
    """Return the streams and order of the best stages found; the longest group of a stage goes to the main stream."""
    chains = _chains(dag)
    stream, order = [0] * len(dag), []
    for first in range(0, len(chains), _BLOCK):
        block = _Block(dag, chains[first : first + _BLOCK])
        for stage in block.stages():
            groups = sorted(block.groups(stage), key=lambda group: (-block.time(group), group))
            for number, group in enumerate(groups):
                tasks = sorted(task for chain in group for task in block.chains[chain])
                order += tasks
                for task in tasks:
                    stream[task] = number
    return Assignment(stream=stream, order=order)


def _chains(dag: Dag) -> list[_Chain]:
    """Operators with one consumer that has no other producer are one unit (IOS fuses convolution and activation).

    Only the first task of a chain has producers outside, so chains ordered by their first task are in topological order.
    """
    head = list(range(len(dag)))
    members: dict[int, list[int]] = {}
    for task in range(len(dag)):
        if len(dag.before[task]) == 1 and len(dag.after[dag.before[task][0]]) == 1:
            head[task] = head[dag.before[task][0]]
        members.setdefault(head[task], []).append(task)
    return [tuple(members[first]) for first in sorted(members)]


class _Block:
    """The DP on one block; sets of chains are bit masks."""

    def __init__(self, dag: Dag, chains: Sequence[_Chain]) -> None:
        self.chains = chains
        self._dag = dag
        owner = {task: number for number, chain in enumerate(chains) for task in chain}
        self._after = [0] * len(chains)
        self._linked = [0] * len(chains)
        for number, chain in enumerate(chains):
            for task in chain:
                for later in dag.after[task]:
                    other = owner.get(later)
                    if other is not None and other != number:
                        self._after[number] |= 1 << other
                        self._linked[number] |= 1 << other
                        self._linked[other] |= 1 << number
        self._best: dict[int, tuple[int, int]] = {}
        #: The same stages end many states: their groups and costs are found once.
        self._groups: dict[int, list[tuple[int, ...]]] = {}
        self._costs: dict[int, int] = {}

    def stages(self) -> list[int]:
        """Return the stages, first to last."""
        left = (1 << len(self.chains)) - 1
        self._solve(left)
        stages = []
        while left:
            stages.append(self._best[left][1])
            left &= ~stages[-1]
        return stages[::-1]

    def groups(self, stage: int) -> list[tuple[int, ...]]:
        """Return the connected groups of a stage, each in order."""
        if stage not in self._groups:
            self._groups[stage] = list(self._connected(stage))
        return self._groups[stage]

    def _connected(self, stage: int) -> Iterator[tuple[int, ...]]:
        while stage:
            group = stage & -stage
            while True:
                grown = group
                for chain in _bits(group):
                    grown |= self._linked[chain] & stage
                if grown == group:
                    break
                group = grown
            yield tuple(_bits(group))
            stage &= ~group

    def time(self, group: Sequence[int]) -> int:
        """Time of the operators of a group one after the other."""
        return sum(self._dag.duration[task] for chain in group for task in self.chains[chain])

    def _solve(self, left: int) -> int:
        """Return the time of the best stages for what is left."""
        if not left:
            return 0
        if left in self._best:
            return self._best[left][0]
        best: tuple[int, int] | None = None
        # Set before the descent, so that the number of states holds on the way down too.
        narrow = len(self._best) >= _STATES
        self._best[left] = (0, 0)
        for ending in self._endings(left, 1 if narrow else _ENDINGS):
            if ending not in self._costs:
                self._costs[ending] = self._cost(ending)
            cost = self._costs[ending] + self._solve(left & ~ending)
            if best is None or (cost, ending) < best:
                best = cost, ending
        assert best is not None, "the last operator in order is always an ending"
        self._best[left] = best
        return best[0]

    def _endings(self, left: int, most: int) -> Iterator[int]:
        """Yield endings, one operator each first, then larger ones."""
        seen: set[int] = set()
        frontier = [0]
        while frontier and len(seen) < most:
            grown: list[int] = []
            for ending in frontier:
                for chain in _bits(left & ~ending):
                    candidate = ending | 1 << chain
                    if candidate in seen or self._after[chain] & left & ~ending:
                        continue
                    groups = self.groups(candidate)
                    if len(groups) > _GROUPS or max(len(group) for group in groups) > _GROUP:
                        continue
                    seen.add(candidate)
                    grown.append(candidate)
                    yield candidate
                    if len(seen) >= most:
                        return
            frontier = grown

    def _cost(self, stage: int) -> int:
        """Longest group, or what the shared cores and the bandwidth need, and a sync where groups run side by side."""
        dag, groups = self._dag, self.groups(stage)
        tasks = [task for group in groups for chain in group for task in self.chains[chain]]
        longest = max(self.time(group) for group in groups)
        shared = [
            -(-sum(dag.duration[task] * dag.demand[task][kind] for task in tasks) // capacity)
            for kind, capacity in enumerate(dag.capacity)
            if capacity
        ]
        return max(longest, *shared) + (2 * dag.sync if len(groups) > 1 else 0)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
