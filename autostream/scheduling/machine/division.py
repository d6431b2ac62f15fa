"""Where a program falls apart: tasks that are ordered with all others divide it into segments that can be solved alone.

Real programs have no such task at first: what prepares (masks, rotary tables) and what ends nowhere (cache writes) runs beside
everything. That little is set aside; the rest, the *core*, is divided. Part of it comes back: what is ordered with all cuts, and
the *opening*, what must be over before a first stretch of the program can be, where that is more than fits beside the stretch.
Ends that need nothing of the machine are set aside even where that opens no cut: each could run beside anything, and bounds that
look at the sets of tasks that may run at once would look at every set once with it and once without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import networkx as nx

from autostream.scheduling.machine.bitsets import members as tasks_of
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.paths import heads, tails

#: Share of all work that may be set aside, in hundredths: it is placed without a search.
_ASIDE = 15
#: It must open at least so many cuts.
_FEWEST = 4
#: Tasks of an instance that an exact search closes as it is, idle ends and all.
_CLOSED = 24
#: Most tasks of a first segment with an opening.
_OPENING = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The tasks from one cut to the next, both included, in program order. The program begins and ends without a cut."""

    tasks: tuple[int, ...]
    entry: int | None
    exit: int | None
    #: Tasks that also read from cuts before the entry (residual connections).
    residual: tuple[int, ...] = ()

    @property
    def inner(self) -> tuple[int, ...]:
        """The tasks between the cuts."""
        return tuple(task for task in self.tasks if task not in (self.entry, self.exit))

    def part(self, instance: Instance, pins: Mapping[int, int] | None = None) -> Instance:
        """The segment as an instance of its own; `pins` gives cuts the only stream they may run on, where they may.

        A residual connection counts as one from the entry, whose stream the cut before it shares. That delays nothing: on the
        way from the entry to a task on another stream there is a sync anyhow.
        """
        links = [] if self.entry is None else [(self.entry, task) for task in self.residual]
        return part(instance, self.tasks, pins=pins or {}, links=links)

    def form(self, instance: Instance) -> tuple[object, ...]:
        """What is equal for two segments if, and only if, it is for them as instances (`Instance.form`)."""
        number = {task: place for place, task in enumerate(self.tasks)}
        before = [[number[one] for one in instance.before[task] if one in number] for task in self.tasks]
        if self.entry is not None:
            for task in self.residual:
                if number[self.entry] not in before[number[task]]:
                    before[number[task]].append(number[self.entry])
        units: dict[int, int] = {}
        unit = tuple([units.setdefault(instance.unit[task], len(units)) for task in self.tasks])
        rows = tuple([tuple(sorted(row)) for row in before])
        return tuple([instance.modes[task] for task in self.tasks]), rows, unit, tuple([instance.allowed[one] for one in units])

    def cut_time(self, instance: Instance) -> int:
        """Time of its cuts, ns."""
        return sum(instance.shortest(cut) for cut in (self.entry, self.exit) if cut is not None)

    def overlap(self, instance: Instance) -> int:
        """Time of the last cut, ns, which belongs to the next segment too."""
        return 0 if self.exit is None else instance.shortest(self.exit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The segments in program order, and the tasks that were set aside.

    Segments of one *kind* are equal as instances (`Instance.form`), so that what holds for one of them holds for all.
    """

    segments: tuple[Segment, ...]
    aside: tuple[int, ...]
    #: What the first segment holds for the sake of its work alone: without it, it would be several.
    opening: tuple[int, ...] = ()
    #: The kind of each segment, and a segment of each kind as an instance of its own.
    kinds: tuple[int, ...]
    parts: tuple[Instance, ...]

    @property
    def regions(self) -> tuple[Segment, ...]:
        """The segments in which there is something between the cuts."""
        return tuple(segment for segment in self.segments if segment.inner)


def divide(instance: Instance) -> Division:
    """Divide an instance. A cluster is never cut, and every task is in the core or aside, but for idle ends with its cluster."""
    reached = _Reached.of(instance)
    aside = _set_aside(instance, reached)
    cuts = _cuts(instance, aside, reached)
    if aside and len(cuts) < _FEWEST:
        aside = {task for task in aside if _idle_ends(instance, (task,))} if len(instance) > _CLOSED else set()
    else:
        aside -= _whole_units(instance, [task for task in sorted(aside) if reached.ordered(task, cuts)])
    opening = _whole_units(instance, _opening(instance, aside, cuts, reached)) if aside else set()
    return _divided(instance, aside - opening, reached, opening)


def divide_around(instance: Instance, aside: Iterable[int]) -> Division:
    """Divide an instance with just these tasks set aside; whole clusters."""
    return _divided(instance, set(aside), _Reached.of(instance))


@dataclass(frozen=True, slots=True)
class _Reached:
    """What comes before and after each task, as bits."""

    before: list[int]
    after: list[int]

    @classmethod
    def of(cls, instance: Instance) -> _Reached:
        return cls(reach(instance.before, range(len(instance))), reach(instance.after, reversed(range(len(instance)))))

    def ordered(self, task: int, others: Iterable[int]) -> bool:
        """True if a task is ordered with all others."""
        known = self.before[task] | self.after[task]
        return all(known >> other & 1 for other in others)


def _divided(instance: Instance, aside: set[int], reached: _Reached, opening: Iterable[int] = ()) -> Division:
    core = [task for task in range(len(instance)) if task not in aside]
    cuts = _cuts(instance, aside, reached)
    segments: list[Segment] = []
    entry: int | None = None
    current: list[int] = []
    for task in core:
        current.append(task)
        if task in cuts:
            if len(current) > 1:
                segments.append(_segment(instance, current, entry, task, cuts))
            entry, current = task, [task]
    if current:
        segments.append(_segment(instance, current, entry, None, cuts))
    kinds, parts = _kinds(instance, segments)
    return Division(
        segments=tuple(segments), aside=tuple(sorted(aside)), opening=tuple(sorted(opening)), kinds=kinds, parts=parts
    )


def _kinds(instance: Instance, segments: Iterable[Segment]) -> tuple[tuple[int, ...], tuple[Instance, ...]]:
    number: dict[object, int] = {}
    kinds: list[int] = []
    parts: list[Instance] = []
    for segment in segments:
        kind = number.setdefault(segment.form(instance), len(parts))
        if kind == len(parts):
            parts.append(segment.part(instance))
        kinds.append(kind)
    return tuple(kinds), tuple(parts)


def _segment(instance: Instance, tasks: Sequence[int], entry: int | None, last: int | None, cuts: set[int]) -> Segment:
    inside = set(tasks)
    residual = (task for task in tasks if task != entry and not cuts.isdisjoint(set(instance.before[task]) - inside))
    return Segment(tasks=tuple(tasks), entry=entry, exit=last, residual=tuple(residual))


def part(
    instance: Instance,
    tasks: Sequence[int],
    *,
    pins: Mapping[int, int] | None = None,
    links: Iterable[tuple[int, int]] = (),
) -> Instance:
    """Some tasks of an instance, numbered afresh in the given order.

    Args:
        instance: the whole.
        tasks: the part, in program order.
        pins: the only stream that some tasks may run on; it counts where it is one they may run on.
        links: precedences to add, as (before, after).
    """
    number = {task: position for position, task in enumerate(tasks)}
    units = list(dict.fromkeys(instance.unit[task] for task in tasks))
    unit_number = {unit: position for position, unit in enumerate(units)}
    pinned = {instance.unit[task]: stream for task, stream in (pins or {}).items()}
    members: list[list[int]] = [[] for _ in units]
    for task, position in number.items():
        members[unit_number[instance.unit[task]]].append(position)
    before = [{number[one]: None for one in instance.before[task] if one in number} for task in tasks]
    after = [{number[one]: None for one in instance.after[task] if one in number} for task in tasks]
    for first, second in links:
        before[number[second]][number[first]] = None
        after[number[first]][number[second]] = None
    allowed = ((pinned[unit],) if pinned.get(unit) in instance.allowed[unit] else instance.allowed[unit] for unit in units)
    return replace(
        instance,
        names=tuple(instance.names[task] for task in tasks),
        modes=tuple(instance.modes[task] for task in tasks),
        work=tuple(instance.work[task] for task in tasks),
        claims=tuple(instance.claims[task] for task in tasks),
        before=tuple(tuple(sorted(row)) for row in before),
        after=tuple(tuple(sorted(row)) for row in after),
        unit=tuple(unit_number[instance.unit[task]] for task in tasks),
        members=tuple(map(tuple, members)),
        allowed=tuple(allowed),
    )


def reach(neighbours: Sequence[Sequence[int]], order: Iterable[int]) -> list[int]:
    """For each task, as a bit mask, everything that its neighbours lead to; `order` visits neighbours first."""
    masks = [0] * len(neighbours)
    for task in order:
        mask = 0
        for neighbour in neighbours[task]:
            mask |= masks[neighbour] | 1 << neighbour
        masks[task] = mask
    return masks


def idle(instance: Instance, tasks: Iterable[int]) -> bool:
    """True if some tasks hold nothing of the machine, and together their stream for no longer than a sync takes."""
    those = tuple(tasks)
    holding = any(any(mode.demand) for task in those for mode in instance.modes[task])
    return not holding and sum(instance.shortest(task) for task in those) <= instance.sync


def _set_aside(instance: Instance, reached: _Reached) -> set[int]:
    """What a longest path neither reaches nor comes from, in connected pieces, the smallest first, as long as it is little."""
    count = len(instance)
    head, tail = heads(instance), tails(instance)
    length = list(map(sum, zip(head, instance.durations, tail, strict=True)))
    most = max(length, default=0)
    longest = [task for task in range(count) if length[task] == most]
    source = min(longest, key=lambda task: (head[task], task), default=0)
    sink = min(longest, key=lambda task: (tail[task], -task), default=0)
    after = reached.after
    on_the_way = [
        task
        for task in range(count)
        if (task == source or after[source] >> task & 1) and (task == sink or after[task] >> sink & 1)
    ]
    inside = set(on_the_way)
    web = nx.Graph()
    web.add_nodes_from(task for task in range(count) if task not in inside)
    web.add_edges_from((one, other) for one, other in instance.edges() if one not in inside and other not in inside)
    for members in instance.members:
        if len(members) > 1:
            outside = [task for task in members if task not in inside]
            web.add_edges_from((outside[0], other) for other in outside[1:])
    pieces = sorted((sum(instance.shortest(task) for task in piece), sorted(piece)) for piece in nx.connected_components(web))
    left = sum(instance.durations) * _ASIDE // 100
    aside: set[int] = set()
    for work, piece in pieces:
        left -= work
        if left < 0:
            break
        held = any(task in inside for one in piece for task in instance.members[instance.unit[one]])
        if not held or (count > _CLOSED and _idle_ends(instance, piece)):
            aside.update(piece)
    return aside


def _idle_ends(instance: Instance, piece: Sequence[int]) -> bool:
    """True if nothing follows some tasks, and they need nothing that others could want (a result written where it is already).

    Behind the tasks that they share a stream with such tasks delay as good as nothing.
    """
    inside = set(piece)
    return idle(instance, piece) and all(inside.issuperset(instance.after[task]) for task in piece)


def _opening(instance: Instance, aside: set[int], cuts: set[int], reached: _Reached) -> list[int]:
    """What was set aside and is needed before the cut up to which that is most of a burden.

    That is where the work that has to precede a cut exceeds the longest path to it by most. It is none where the path is longer:
    then what was set aside may well hide. Only the first cuts count, and of a row of them the first.
    """
    head, out = heads(instance), sum(1 << task for task in aside)
    best, found = 0, 0
    needed = 0
    for cut in sorted(cuts):
        if reached.before[cut] & out == needed:
            continue
        if reached.before[cut].bit_count() >= _OPENING:
            break
        needed = reached.before[cut] & out
        work = [
            sum(column) for column in zip(*(_least_held(instance, task) for task in tasks_of(reached.before[cut])), strict=True)
        ]
        excess = max(total // capacity for total, capacity in zip(work, instance.capacity, strict=True) if capacity) - head[cut]
        if excess > best:
            best, found = excess, needed
    return [task for task in sorted(aside) if found >> task & 1]


def _least_held(instance: Instance, task: int) -> list[int]:
    """The least that a task brings of each resource, its time times what it holds."""
    return [min(mode.duration * mode.demand[kind] for mode in instance.modes[task]) for kind in range(len(instance.capacity))]


def _whole_units(instance: Instance, tasks: Iterable[int]) -> set[int]:
    """The tasks whose clusters are all among them."""
    inside = set(tasks)
    return {task for task in inside if inside.issuperset(instance.members[instance.unit[task]])}


def _cuts(instance: Instance, aside: set[int], reached: _Reached) -> set[int]:
    """The tasks of the core that are ordered with all others of it and leave every cluster whole."""
    core = [task for task in range(len(instance)) if task not in aside]
    everyone = sum(1 << task for task in core)
    comparable = {task for task in core if (reached.after[task] | reached.before[task] | 1 << task) & everyone == everyone}
    return _uncut_clusters(instance, core, comparable)


def _uncut_clusters(instance: Instance, core: Sequence[int], cuts: set[int]) -> set[int]:
    """The cuts that leave every cluster whole: one that is nothing but cuts in a row may be divided, for a row stays together."""
    kept = set(cuts)
    place = {task: number for number, task in enumerate(core)}
    for unit in instance.members:
        members = [task for task in unit if task in place]
        if len(members) > 1:
            first, last = place[members[0]], place[members[-1]]
            if not cuts.issuperset(members) or last - first + 1 > len(members):
                kept.difference_update(core[first : last + 1])
    return kept
