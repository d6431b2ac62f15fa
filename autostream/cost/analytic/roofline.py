"""The analytic cost model: launch + the slowest of cube, vector, HBM, L2 and communication, from two data files."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable
from dataclasses import replace

from autostream.cost.analytic.product import without_idle_weights
from autostream.cost.analytic.terms import Term, cube_term, hbm_term, launch_term, vector_term
from autostream.cost.chips.chip import Chip, ErrorBand
from autostream.cost.chips.communication import comm_term, gang_cores
from autostream.cost.chips.factors import Band, CommKind, Factors, Group, load_factors
from autostream.cost.model import FREE, Breakdown, Cost, Machine, Resources, Tier
from autostream.graph.model import Op, Unit

#: Raise when a formula changes: together with the two data files it identifies every price.
_REVISION = 4
#: Fewest different kernels that say something of the error of a group (see `calibration.heldout.covering`).
_FEWEST = 4


class RooflineModel:
    """Prices operators on one chip. Deterministic; knows nothing of the graph around an operator."""

    def __init__(self, chip: Chip, factors: Factors | None = None) -> None:
        self._chip = chip
        self._factors = factors or load_factors()
        #: Prices that were asked for, by `_alike`: the layers of a deep model are alike.
        self._known: dict[Hashable, Cost] = {}

    @functools.cached_property
    def machine(self) -> Machine:
        """The chip the prices are for."""
        return self._chip.machine

    def fingerprint(self) -> str:
        """Return a stable text that changes whenever a price could change."""
        return f"roofline-{_REVISION}/{self._chip.name}-{self._chip.digest}/{self._factors.digest}"

    def estimate(self, op: Op) -> Cost:
        """Return the cost of one operator; an unknown one holds the whole chip and gets the tier UNKNOWN."""
        if op.unit is Unit.FREE:
            return FREE
        key = _alike(op)
        cost = self._known.get(key)
        if cost is None:
            cost = self._known[key] = self.price(op, self._group(op)) if op.known else self._unknown(op)
        return cost

    def price(self, op: Op, group: Group) -> Cost:
        """Return the cost of a known operator with the factors of a group."""
        if op.unit is Unit.HOST:
            return self._host()
        if op.unit is Unit.COMM:
            return self._comm(op, group)
        return self._kernel(op, group, op.unit) if group.engine == "cores" else self._copy(op, group)

    def limited(self, op: Op, *, aic: int, aiv: int) -> Cost:
        """Return the cost of an operator that may use at most so many cube and vector cores (at least one of each is taken).

        Where the limit would only be advice (see `limits` in `op_factors.yaml`), and for what runs on no core, this is the cost
        on the whole chip, and the resources say so.
        """
        chip = self._chip
        fewer = {"aic_cores": min(max(1, aic), chip.aic_cores.value), "aiv_cores": min(max(1, aiv), chip.aiv_cores.value)}
        if not op.known or op.unit in (Unit.FREE, Unit.HOST, Unit.COMM) or self._group(op).limits == "advisory":
            return self.estimate(op)
        counts = {key: getattr(chip, key).model_copy(update={"value": value}) for key, value in fewer.items()}
        return RooflineModel(chip.model_copy(update=counts), self._factors).estimate(op)

    def _group(self, op: Op) -> Group:
        file = self._factors.file
        defaults = {Unit.CUBE: file.default_cube, Unit.MIXED: file.default_mixed, Unit.COMM: file.default_comm}
        return self._factors.find(op.target) or defaults.get(op.unit, file.default_vector)

    def _kernel(self, op: Op, group: Group, unit: Unit) -> Cost:
        chip = self._chip
        op = without_idle_weights(op, group)
        cube = cube_term(op, group, chip) if _multiplies(op, group, unit) else Term()
        vector = vector_term(op, group, chip) if unit is not Unit.CUBE else Term()
        # The cube side of a mixed product sets its blocks and moves its factors; its vector work rides along.
        lead = cube if cube.cores else vector
        efficiency = chip.hbm.aiv_efficiency if unit is Unit.VECTOR else chip.hbm.aic_efficiency
        hbm, whole = hbm_term(op, group, chip, efficiency.value, lead.busiest)
        parts = Breakdown(
            launch=round(launch_term(unit, lead.share, op, group, chip)),
            cube=math.ceil(cube.compute),
            vector=math.ceil(vector.compute),
            hbm=math.ceil(hbm),
            l2=math.ceil(lead.l2),
            comm=math.ceil(comm_term(op, group, chip.comm, group.comm)) if group.comm else 0,
        )
        held = self._held(unit, cube.cores, 0 if cube.cores else vector.cores, group.comm)
        return self._cost(parts, held, stated_class(group, parts), memory=whole)

    def _held(self, unit: Unit, aic: int, aiv: int, comm: CommKind | None) -> Resources:
        """Return the cores of a kernel. A mixed one takes cube cores together with the vector cores that belong to them."""
        all_aic, all_aiv = self._chip.aic_cores.value, self._chip.aiv_cores.value
        if unit is Unit.MIXED:
            aic = max(1, aic, math.ceil(aiv * all_aic / all_aiv))
            aiv = min(all_aiv, math.ceil(aic * all_aiv / all_aic))
        return Resources(aic=min(aic, all_aic), aiv=min(aiv, all_aiv), comm=1 if comm else 0)

    def _comm(self, op: Op, group: Group) -> Cost:
        chip = self._chip
        kind = group.comm or "all_reduce"
        hbm = (op.bytes_read + op.bytes_written) / (chip.hbm.spec_gb_per_s.value * chip.hbm.aiv_efficiency.value)
        parts = Breakdown(hbm=math.ceil(hbm), comm=math.ceil(comm_term(op, group, chip.comm, kind)))
        gang = min(gang_cores(chip.comm, kind), chip.aiv_cores.value)
        # No public figure is of a collective between servers.
        inside = (op.group_size or chip.comm.default_ranks.value) <= chip.comm.node.devices.value
        return self._cost(parts, Resources(aiv=gang, comm=1), group.band if inside else "unknown")

    def _copy(self, op: Op, group: Group) -> Cost:
        """What the copy engine does: it holds no core, but its share of the device memory."""
        hbm = max(op.bytes_read, op.bytes_written) / (self._chip.hbm.spec_gb_per_s.value * self._chip.hbm.aiv_efficiency.value)
        launch = round(self._chip.launch.aiv.base_us.value * 1000)
        parts = Breakdown(launch=launch, hbm=math.ceil(hbm))
        return self._cost(parts, Resources(), stated_class(group, parts))

    def _host(self) -> Cost:
        launch = round(self._chip.launch.host_us.value * 1000)
        return self._cost(Breakdown(launch=launch), Resources(), "unknown")

    def _unknown(self, op: Op) -> Cost:
        """Everything cold, both kinds of core, all of them, and the engine too if it may communicate."""
        group = self._factors.file.unknown
        kernel = self._kernel(op, group, Unit.MIXED)
        parts = kernel.breakdown
        if op.unit is Unit.COMM:
            parts = replace(parts, comm=math.ceil(comm_term(op, group, self._chip.comm, "all_reduce")))
        held = Resources(aic=self._chip.aic_cores.value, aiv=self._chip.aiv_cores.value, comm=1 if op.unit is Unit.COMM else 0)
        return replace(self._cost(parts, held, group.band), tier=Tier.UNKNOWN)

    def _cost(self, parts: Breakdown, held: Resources, band: Band, memory: float | None = None) -> Cost:
        """Return launch + the longest term. `memory` is the time in device memory at the rate of the whole chip."""
        busy = max(parts.cube, parts.vector, parts.hbm, parts.l2, parts.comm)
        if not parts.launch + busy:
            # A task takes time, however small.
            parts = replace(parts, launch=1)
        duration = parts.launch + busy
        share = min(1000, math.ceil(1000 * (parts.hbm if memory is None else memory) / duration))
        error: ErrorBand = getattr(self._chip.relative_error, band)
        return Cost(
            duration=duration,
            breakdown=parts,
            resources=replace(held, hbm=share),
            tier=Tier.ANALYTIC,
            error=error.value,
            spread=error.p90.value if error.p90 else error.value,
        )


def stated_class(group: Group, parts: Breakdown) -> Band:
    """Return the class whose error band holds for a kernel with these terms.

    That of its group where enough kernels of it were measured, some of them bound by the same term. How far the price of others
    is off was never seen: they get the band of groups that the model was not fitted to.
    """
    if group.kernels < _FEWEST:
        return "unknown"
    longest = max(parts.launch, parts.cube, parts.vector, parts.hbm, parts.l2, parts.comm)
    return group.band if any(getattr(parts, term) == longest for term in group.bound) else "unknown"


def _alike(op: Op) -> Hashable:
    """Return all of an operator that a price can depend on; the rest is its name and its place in a graph."""
    work = (op.inputs, op.outputs, op.flops, op.bytes_read, op.bytes_written)
    return op.target, op.unit, op.known, op.group, op.group_size, op.in_kernel, op.into_input, *work


def _multiplies(op: Op, group: Group, unit: Unit) -> bool:
    """A mixed operator without flop or product (a sort, a routing) only borrows the cube cores."""
    return unit is Unit.CUBE or (unit is Unit.MIXED and (op.flops > 0 or group.product is not None))
