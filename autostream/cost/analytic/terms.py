"""The terms of the roofline, one function each. Times are nanoseconds as floats; bytes and flop are those of one operator."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autostream.cost.analytic.product import cube_rate, read_product, tile
from autostream.cost.chips.chip import Chip, Launch
from autostream.cost.chips.factors import Group
from autostream.graph.model import Op, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Time in the compute unit, time in the L2 path of its cores, and how many of them it occupies.

    `share` is how much of the chip the blocks (tiles, rows) of the kernel fill, 0 .. 1: what the launch cost grows with.
    `busiest` is the share of the weights that the busiest cube core brings in (0: no cube core does).
    """

    compute: float = 0.0
    l2: float = 0.0
    cores: int = 0
    share: float = 0.0
    busiest: float = 0.0


def cube_term(op: Op, group: Group, chip: Chip) -> Term:
    """Return the cube side: waves of padded tiles over the cores, and never less than the flop at the achieved peak."""
    rate = cube_rate(op, group, chip.cube)
    efficiency = (group.cube_efficiency or rate.efficiency).value
    per_core = rate.flop_per_cycle_per_core.value * chip.clock_mhz.value / 1000 * efficiency
    cores = chip.aic_cores.value
    shared = (op.bytes_read + op.bytes_written) / chip.l2.aic_gb_per_s.value
    spread = op.flops / (per_core * cores)
    product = read_product(op, group)
    if product is None:
        return Term(compute=spread, l2=shared, cores=cores, share=1.0, busiest=1 / cores)
    tiling = tile(product, chip.cube, cores)
    own = tiling.bytes_read / (chip.cube.l2_bytes_per_cycle_per_core.value * chip.clock_mhz.value / 1000)
    return Term(
        compute=max(spread, tiling.flop / per_core),
        l2=max(shared, own),
        cores=tiling.cores,
        share=min(1.0, tiling.tiles / cores),
        busiest=tiling.share,
    )


def vector_term(op: Op, group: Group, chip: Chip) -> Term:
    """Return the vector side: the bytes of the busiest core, times the passes over them."""
    cores = chip.aiv_cores.value
    moved = op.bytes_read + op.bytes_written
    if group.blocks == "rows":
        wanted, load = _rows(op, moved, cores)
    elif group.blocks == "chip":
        wanted, load = cores, moved / cores
    else:
        wanted, load = _blocks(op, moved, cores, chip)
    passes = group.vector_passes.value if group.vector_passes else 1.0
    cycles_per_ns = (chip.vector.clock_mhz or chip.clock_mhz).value / 1000
    return Term(
        compute=load * passes / (chip.vector.bytes_per_cycle_per_core.value * cycles_per_ns),
        l2=max(
            moved / chip.l2.aiv_gb_per_s.value,
            load / (chip.vector.transfer_bytes_per_cycle_per_core.value * cycles_per_ns),
        ),
        cores=min(cores, max(1, wanted)),
        share=min(1.0, wanted / cores),
    )


def _blocks(op: Op, moved: int, cores: int, chip: Chip) -> tuple[int, float]:
    """Return the blocks an even split by bytes asks for, and the bytes of the busiest core."""
    size = chip.vector.bytes_per_block.value
    # A kernel is cut along its largest tensor; of a table that is only looked up, just the rows it touches count.
    side = max(op.bytes_read, op.bytes_written)
    largest = min(side, max((spec.nbytes for spec in (*op.inputs, *op.outputs)), default=side))
    return math.ceil(largest / size), max(moved / cores, min(moved, size))


def _rows(op: Op, moved: int, cores: int) -> tuple[int, float]:
    """Return the number of rows of the first input, and the bytes of the core with most rows."""
    rows = math.prod(op.inputs[0].shape[:-1]) if op.inputs else 1
    return rows, moved * math.ceil(rows / cores) / rows if rows else 0.0


def hbm_term(op: Op, group: Group, chip: Chip, efficiency: float, busiest: float = 0.0) -> tuple[float, float]:
    """Return the time in device memory, and how much of it would be left at the rate of the whole chip.

    Counted is what cannot be in the cache: weights, tables, or a working set too large for it. `busiest` is the share that one
    cube core brings in, at no more than its own rate.
    """
    cold = cold_bytes(op, group, chip)
    whole = cold / (chip.hbm.spec_gb_per_s.value * efficiency)
    own = cold * busiest / (chip.hbm.bytes_per_cycle_per_aic_core.value * chip.clock_mhz.value / 1000)
    return max(whole, own), whole


def cold_bytes(op: Op, group: Group, chip: Chip) -> int:
    """Return the bytes an operator brings from device memory or writes to it."""
    moved = op.bytes_read + op.bytes_written
    resident = moved <= chip.l2.resident_share.value * chip.l2.size_mib.value * 2**20
    if not resident or group.cold == "all":
        return moved
    if group.cold == "weights":
        left = group.operands[0]
        activation = op.inputs[left].nbytes if left < len(op.inputs) else 0
        return max(0, op.bytes_read - activation)
    return 0


def launch_term(unit: Unit, share: float, op: Op, group: Group, chip: Chip) -> float:
    """Return launch and tail of a kernel that uses `share` of the cores of its kind (0 .. 1)."""
    extra = group.extra_launch_us.value if group.extra_launch_us else 0.0
    if unit is Unit.VECTOR:
        factor = group.launch_factor.value if group.launch_factor else 1.0
        return _launch(chip.launch.aiv, share) * factor + extra * 1000
    extra += cube_rate(op, group, chip.cube).extra_launch_us.value
    if unit is Unit.MIXED:
        extra += chip.launch.mix_extra_us.value
    return _launch(chip.launch.aic, share) + extra * 1000


def _launch(launch: Launch, share: float) -> float:
    return (launch.base_us.value + launch.full_chip_us.value * share) * 1000
