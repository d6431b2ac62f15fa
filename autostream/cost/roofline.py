"""The analytic cost model: launch + the slowest of cube, vector, HBM, L2 and communication, from two data files."""

from __future__ import annotations

import math
from dataclasses import replace

from autostream.cost.chip import Chip, Collective
from autostream.cost.factors import Factors, Group, load_factors
from autostream.cost.model import FREE, Breakdown, Cost, Machine, Resources, Tier
from autostream.cost.terms import Term, comm_term, cube_term, hbm_term, launch_term, vector_term
from autostream.graph.model import Op, Unit

#: Raise when a formula changes: together with the two data files it identifies every price.
_REVISION = 1


class RooflineModel:
    """Prices operators on one chip. Deterministic; knows nothing of the graph around an operator."""

    def __init__(self, chip: Chip, factors: Factors | None = None) -> None:
        self._chip = chip
        self._factors = factors or load_factors()

    @property
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
        if not op.known:
            return self._unknown(op)
        group = self._group(op)
        if op.unit is Unit.HOST:
            return self._host()
        if op.unit is Unit.COMM:
            return self._comm(op, group)
        return self._kernel(op, group, op.unit)

    def _group(self, op: Op) -> Group:
        file = self._factors.file
        defaults = {Unit.CUBE: file.default_cube, Unit.MIXED: file.default_mixed, Unit.COMM: file.default_comm}
        return self._factors.find(op.target) or defaults.get(op.unit, file.default_vector)

    def _kernel(self, op: Op, group: Group, unit: Unit) -> Cost:
        chip = self._chip
        cube = cube_term(op, group, chip) if _multiplies(op, group, unit) else Term()
        vector = vector_term(op, group, chip) if unit is not Unit.CUBE else Term()
        # The cube side of a mixed product sets its blocks and moves its factors; its vector work rides along.
        lead = cube if cube.cores else vector
        efficiency = chip.hbm.aiv_efficiency if unit is Unit.VECTOR else chip.hbm.aic_efficiency
        collective = self._collective(group)
        parts = Breakdown(
            launch=round(launch_term(unit, lead.share, op, group, chip)),
            cube=math.ceil(cube.compute),
            vector=math.ceil(vector.compute),
            hbm=math.ceil(hbm_term(op, group, chip, efficiency.value)),
            l2=math.ceil(lead.l2),
            comm=math.ceil(comm_term(op, group, collective)) if collective else 0,
        )
        held = self._held(unit, cube.cores, 0 if cube.cores else vector.cores, collective)
        return self._cost(parts, held, self._error(group))

    def _held(self, unit: Unit, aic: int, aiv: int, collective: Collective | None) -> Resources:
        """Return the cores of a kernel. A mixed one takes cube cores together with the vector cores that belong to them."""
        all_aic, all_aiv = self._chip.aic_cores.value, self._chip.aiv_cores.value
        if unit is Unit.MIXED:
            aic = max(1, aic, math.ceil(aiv * all_aic / all_aiv))
            aiv = min(all_aiv, math.ceil(aic * all_aiv / all_aic))
        return Resources(aic=min(aic, all_aic), aiv=min(aiv, all_aiv), comm=1 if collective else 0)

    def _comm(self, op: Op, group: Group) -> Cost:
        chip = self._chip
        collective = self._collective(group) or chip.comm.all_reduce
        hbm = (op.bytes_read + op.bytes_written) / (chip.hbm.spec_gb_per_s.value * chip.hbm.aiv_efficiency.value)
        parts = Breakdown(hbm=math.ceil(hbm), comm=math.ceil(comm_term(op, group, collective)))
        gang = min(collective.aiv_gang_cores.value, chip.aiv_cores.value)
        return self._cost(parts, Resources(aiv=gang, comm=1), self._error(group))

    def _host(self) -> Cost:
        launch = round(self._chip.launch.host_us.value * 1000)
        return self._cost(Breakdown(launch=launch), Resources(), self._chip.relative_error.unknown.value)

    def _unknown(self, op: Op) -> Cost:
        """Everything cold, both kinds of core, all of them, and the engine too if it may communicate."""
        group = self._factors.file.unknown
        kernel = self._kernel(op, group, Unit.MIXED)
        parts = kernel.breakdown
        if op.unit is Unit.COMM:
            parts = replace(parts, comm=math.ceil(comm_term(op, group, self._chip.comm.all_reduce)))
        held = Resources(aic=self._chip.aic_cores.value, aiv=self._chip.aiv_cores.value, comm=1 if op.unit is Unit.COMM else 0)
        return replace(self._cost(parts, held, self._error(group)), tier=Tier.UNKNOWN)

    def _collective(self, group: Group) -> Collective | None:
        if group.comm is None:
            return None
        collective: Collective = getattr(self._chip.comm, group.comm)
        return collective

    def _error(self, group: Group) -> float:
        error: float = getattr(self._chip.relative_error, group.band).value
        return error

    @staticmethod
    def _cost(parts: Breakdown, held: Resources, error: float) -> Cost:
        busy = max(parts.cube, parts.vector, parts.hbm, parts.l2, parts.comm)
        if not parts.launch + busy:
            # A task takes time, however small.
            parts = replace(parts, launch=1)
        duration = parts.launch + busy
        share = min(1000, math.ceil(1000 * parts.hbm / duration))
        return Cost(duration=duration, breakdown=parts, resources=replace(held, hbm=share), tier=Tier.ANALYTIC, error=error)


def _multiplies(op: Op, group: Group, unit: Unit) -> bool:
    """A mixed operator without flop or product (a sort, a routing) only borrows the cube cores."""
    return unit is Unit.CUBE or (unit is Unit.MIXED and (op.flops > 0 or group.product is not None))
