"""Fit the numbers of the cost model to measured kernels: the code behind the shipped numbers and behind a user's calibration.

Each number is moved by itself, within bounds, to where the error of the rows it matters to is smallest (the mean of relative
error and absolute log error, so that too long and too short count alike), and this is repeated. A term that grows with the
distance (in logarithms) from the number given keeps what few rows show close to it: it takes about four rows that agree to move a
number freely. Chips weigh alike, however many rows they have: what is fitted must hold for the next chip.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from autostream.cost.analytic.roofline import RooflineModel
from autostream.cost.calibration.knobs import CHIP_KNOBS, GROUP_KNOBS, NEUTRAL, VECTOR_KEYS, Knob
from autostream.cost.chips.chip import Chip
from autostream.cost.chips.factors import Factors, Group
from autostream.graph.model import Op

#: Weight of log(1 + x * x), x = log(number / number given), in rows. Far away it hardly grows: some kernels are ten times slower.
_PRIOR = 2.0
#: Rounds over all numbers of a stage; each stops moving after two or three.
_ROUNDS = 4
#: Rows up to which a chip counts by its rows rather than as a whole.
_HANDFUL = 5
#: The key of `op_factors.yaml` that prices vector operators which no group names.
_DEFAULT = "default_vector"
#: Steps tried in each direction, as factors, coarse to fine.
_STEPS = (6, 2.5, 1.6, 1.25, 1.1, 1.04)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured kernel: a key of `chips`, the operator that launched it, and its duration in ns (above zero)."""

    chip: str
    op: Op
    duration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Relative errors of some rows: abs(predicted / measured - 1)."""

    rows: int
    median: float
    p75: float
    p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The same chips and factors with fitted numbers, and how far they are off on the rows they were fitted to, by band."""

    chips: Mapping[str, Chip]
    factors: Factors
    errors: Mapping[str, Spread]


#: A sample and the name of the group that prices it.
_Row = tuple[Sample, str]


def spread(errors: Iterable[float]) -> Spread:
    """Return median, p75 and p90 of relative errors (at least one)."""
    values = sorted(errors)
    return Spread(
        rows=len(values),
        median=statistics.median(values),
        p75=values[min(len(values) - 1, int(0.75 * len(values)))],
        p90=values[min(len(values) - 1, int(0.9 * len(values)))],
    )


def relative_errors(samples: Sequence[Sample], chips: Mapping[str, Chip], factors: Factors) -> list[float]:
    """Return predicted / measured - 1 of each sample."""
    models = {name: RooflineModel(chip, factors) for name, chip in chips.items()}
    return [models[sample.chip].estimate(sample.op).duration / sample.duration - 1 for sample in samples]


def fit(
    samples: Sequence[Sample], chips: Mapping[str, Chip], factors: Factors, *, groups: bool = True, anew: bool = False
) -> Fit:
    """Return chips and factors with efficiencies, launches and (with `groups`) the factors of operator groups fitted to samples.

    The numbers given are where the fit starts from and what few rows stay close to; with `anew` none of them is used: every
    number starts from a neutral one, and groups from what all vector operators have in common.
    """
    search = _Search(samples, chips, factors, anew=anew)
    search.turn_chips(with_groups=groups)
    if groups:
        if anew:
            search.turn_class()
        search.turn_groups(("vector",), VECTOR_KEYS)
        search.turn_groups(("attention", "conv"), ("cube_efficiency",))
    return search.result()


class _Search:
    """The numbers as they stand, and the samples by the group that prices them."""

    def __init__(self, samples: Sequence[Sample], chips: Mapping[str, Chip], factors: Factors, *, anew: bool) -> None:
        self._chips = dict(chips)
        # What prices operators that no group names moves with its class.
        self._groups = {**factors.file.groups, _DEFAULT: factors.file.default_vector}
        self._factors = factors
        owner = {id(group): name for name, group in self._groups.items()}
        found = [(sample, factors.find(sample.op.target)) for sample in samples]
        self._samples = [(sample, owner[id(group)]) for sample, group in found if group is not None]
        if anew:
            self._forget()

    def _forget(self) -> None:
        """Put every number that is fitted to its neutral value."""
        for knob in CHIP_KNOBS:
            self._set_chips(knob.path, knob.neutral)
        for name, group in self._groups.items():
            for key in GROUP_KNOBS:
                one = 1.2 if group.band == "elementwise" and key == "launch_factor" else NEUTRAL[key]
                self._set_groups([name], key, one)

    def turn_chips(self, *, with_groups: bool) -> None:
        """Fit the numbers of the chips, and with them the factors of elementwise operators."""
        turns: list[Callable[[], bool]] = []
        for knob in CHIP_KNOBS:
            rows = [item for item in self._samples if knob.concerns(item[0].op, self._groups[item[1]])]
            if rows:
                turns.append(functools.partial(self._turn_chip, knob, self._stands(knob.path), rows))
        if with_groups:
            turns += self._group_turns(("elementwise",), VECTOR_KEYS)
        _repeat(turns)

    def turn_class(self) -> None:
        """Fit the factors that all groups of the class `vector` have in common, and let each group start from them.

        Operators that no group names are priced by these factors themselves.
        """
        names = [name for name, group in self._groups.items() if group.band == "vector"]
        rows = [item for item in self._samples if item[1] in names]
        if rows:
            _repeat([functools.partial(self._turn_groups, names, key, NEUTRAL[key], rows) for key in VECTOR_KEYS])

    def turn_groups(self, bands: tuple[str, ...], keys: tuple[str, ...]) -> None:
        """Fit factors of every group of some bands, each to its own rows."""
        _repeat(self._group_turns(bands, keys))

    def result(self) -> Fit:
        """Return the numbers as they stand."""
        factors = self._with_groups()
        samples = [sample for sample, _ in self._samples]
        errors: dict[str, list[float]] = {}
        for (_, name), error in zip(self._samples, relative_errors(samples, self._chips, factors), strict=True):
            errors.setdefault(self._groups[name].band, []).append(abs(error))
        spreads = {band: spread(values) for band, values in sorted(errors.items())}
        return Fit(chips=dict(self._chips), factors=factors, errors=spreads)

    def _group_turns(self, bands: tuple[str, ...], keys: tuple[str, ...]) -> list[Callable[[], bool]]:
        """Return one turn for each number of each group that has rows."""
        turns: list[Callable[[], bool]] = []
        for name, group in self._groups.items():
            rows = [item for item in self._samples if item[1] == name]
            if group.band in bands and rows:
                for key in keys:
                    number = getattr(group, key)
                    if number is not None:
                        turns.append(functools.partial(self._turn_groups, [name], key, number.value, rows))
        return turns

    def _turn_chip(self, knob: Knob, given: float, rows: Sequence[_Row]) -> bool:
        put = functools.partial(self._set_chips, knob.path)
        return self._turn(given, self._stands(knob.path), (knob.low, knob.high), rows, put)

    def _turn_groups(self, names: Sequence[str], key: str, given: float, rows: Sequence[_Row]) -> bool:
        at = next(number.value for name in names if (number := getattr(self._groups[name], key)) is not None)
        return self._turn(given, at, GROUP_KNOBS[key], rows, functools.partial(self._set_groups, names, key))

    def _turn(
        self,
        given: float,
        at: float,
        bounds: tuple[float, float],
        rows: Sequence[_Row],
        put: Callable[[float], None],
    ) -> bool:
        """Move one number to where the error of its rows is smallest, nearest to where it stands; tell whether it moved."""

        def loss(value: float) -> float:
            put(value)
            return self._loss(rows) + _PRIOR * math.log1p(math.log(value / given) ** 2)

        best, least = at, loss(at)
        for step in _STEPS:
            for factor in (step, 1 / step):
                while True:
                    value = min(bounds[1], max(bounds[0], best * factor))
                    found = loss(value) if value != best else least
                    if found >= least - 1e-9:
                        break
                    best, least = value, found
        put(best)
        return best != at

    def _loss(self, rows: Sequence[_Row]) -> float:
        models = {name: RooflineModel(chip, self._factors) for name, chip in self._chips.items()}
        weights = _weights([sample.chip for sample, _ in rows])
        total = 0.0
        for sample, name in rows:
            predicted = models[sample.chip].price(sample.op, self._groups[name]).duration
            ratio = predicted / sample.duration
            total += weights[sample.chip] * (abs(ratio - 1) + abs(math.log(ratio))) / 2
        return total

    def _stands(self, path: str) -> float:
        quantity: Any = functools.reduce(getattr, path.split("."), next(iter(self._chips.values())))
        return float(quantity.value)

    def _set_chips(self, path: str, value: float) -> None:
        self._chips = {name: _with(chip, path, value) for name, chip in self._chips.items()}

    def _set_groups(self, names: Sequence[str], key: str, value: float) -> None:
        for name in names:
            group = self._groups[name]
            if getattr(group, key) is not None:
                self._groups[name] = group.model_copy(update={key: _quantity(group, key, value)})

    def _with_groups(self) -> Factors:
        groups = {name: group for name, group in self._groups.items() if name != _DEFAULT}
        file = self._factors.file.model_copy(update={"groups": groups, _DEFAULT: self._groups[_DEFAULT]})
        names = {id(group): name for name, group in self._factors.file.groups.items()}
        by_target = {target: self._groups[names[id(group)]] for target, group in self._factors.by_target.items()}
        return Factors(file=file, digest=f"{self._factors.digest}-fitted", by_target=by_target)


def _repeat(turns: Sequence[Callable[[], bool]]) -> None:
    """Take every turn, again and again until nothing moves."""
    for _ in range(_ROUNDS):
        moved = [turn() for turn in turns]
        if not any(moved):
            return


def _weights(chips: Sequence[str]) -> dict[str, float]:
    """Return the weight of one row of each chip: chips count the same, however many rows they have, but for a handful of rows."""
    counts = Counter(chips)
    shares = {chip: 1 / (count + _HANDFUL) for chip, count in counts.items()}
    total = sum(shares[chip] * count for chip, count in counts.items())
    return {chip: share * len(chips) / total for chip, share in shares.items()}


def _with(section: Any, path: str, value: float) -> Any:
    """Return a section of a data file with one number replaced."""
    key, _, rest = path.partition(".")
    inner = getattr(section, key)
    return section.model_copy(update={key: _with(inner, rest, value) if rest else inner.model_copy(update={"value": value})})


def _quantity(group: Group, key: str, value: float) -> BaseModel:
    quantity: BaseModel = getattr(group, key)
    return quantity.model_copy(update={"value": value})
