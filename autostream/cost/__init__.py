"""What operators cost: chip files, the analytic model, tables of prices."""

from autostream.cost.analytic.roofline import RooflineModel
from autostream.cost.chips.chip import Chip, chip_names, json_schema, load_chip
from autostream.cost.chips.detect import detect_chip
from autostream.cost.measured.matching import Matching, match
from autostream.cost.measured.measured import MeasuredModel
from autostream.cost.model import FREE, Breakdown, CoreLimited, Cost, CostModel, Machine, Resources, Tier
from autostream.cost.table import TableModel

__all__ = [
    "FREE",
    "Breakdown",
    "Chip",
    "CoreLimited",
    "Cost",
    "CostModel",
    "Machine",
    "Matching",
    "MeasuredModel",
    "Resources",
    "RooflineModel",
    "TableModel",
    "Tier",
    "chip_names",
    "detect_chip",
    "json_schema",
    "load_chip",
    "match",
]
