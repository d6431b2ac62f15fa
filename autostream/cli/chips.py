"""What ``autostream chips`` shows: the shipped chip files, and every number of one chip with its source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from autostream.cost import chip_names, load_chip
from autostream.cost.datafile import Quantity, Section

if TYPE_CHECKING:
    from autostream.cost import Chip

_SURE = {"S": "agreeing sources", "L": "one source", "U": "conflicting or assumed"}
_LEGEND = "Confidence: " + ", ".join(f"{letter} = {meaning}" for letter, meaning in _SURE.items())


def as_data(name: str | None) -> Any:
    """Return what the command shows as JSON data: one chip, or a list of all.

    Raises:
        InputError: unknown chip.
    """
    if name is None:
        return [_summary(load_chip(chip)) for chip in chip_names()]
    return {**load_chip(name).model_dump(mode="json"), "digest": load_chip(name).digest}


def as_table(name: str | None) -> Group:
    """Return what the command shows as tables: one chip, or all.

    Raises:
        InputError: unknown chip.
    """
    return _all_chips() if name is None else _one_chip(load_chip(name))


def _all_chips() -> Group:
    table = Table(title="Chips autostream has data for", title_justify="left", title_style="bold")
    table.add_column("Chip", no_wrap=True)
    for heading in ("AIC", "AIV", "MHz", "L2 MiB", "HBM GiB"):
        table.add_column(heading, justify="right")
    table.add_column("Numbers by confidence")
    table.add_column("Also for", overflow="fold")
    for chip in map(load_chip, chip_names()):
        row = _summary(chip)
        sure = ", ".join(f"{letter} {count}" for letter, count in row["confidence"].items())
        numbers = (row[key] for key in ("aic_cores", "aiv_cores", "clock_mhz", "l2_mib", "hbm_gib"))
        cells = (chip.name, *(f"{number:g}" for number in numbers), sure, ", ".join(chip.aliases))
        table.add_row(*(Text(cell) for cell in cells))
    return Group(table, Text(f"{_LEGEND}. 'autostream chips NAME' shows every number and its source."))


def _one_chip(chip: Chip) -> Group:
    table = Table(title=f"Chip {chip.name} (file {chip.digest})", title_justify="left", title_style="bold")
    table.add_column("Number", overflow="fold")
    table.add_column("Value", justify="right", no_wrap=True)
    table.add_column("Sure", no_wrap=True)
    table.add_column("Source", overflow="fold")
    for path, quantity in _quantities(chip):
        source = f"{quantity.source} ({quantity.note})" if quantity.note else quantity.source
        table.add_row(*(Text(cell) for cell in (path, f"{quantity.value:.10g}", quantity.confidence, source)))
    lines = [_LEGEND]
    if chip.aliases:
        lines.append(f"Also for: {', '.join(chip.aliases)}")
    lines.extend(f"Source: {source}" for source in chip.sources)
    return Group(table, *(Text(line) for line in lines))


def _summary(chip: Chip) -> dict[str, Any]:
    counted: Counter[str] = Counter(quantity.confidence for _, quantity in _quantities(chip))
    return {
        "name": chip.name,
        "aliases": list(chip.aliases),
        "aic_cores": chip.aic_cores.value,
        "aiv_cores": chip.aiv_cores.value,
        "clock_mhz": chip.clock_mhz.value,
        "l2_mib": chip.l2.size_mib.value,
        "hbm_gib": chip.hbm.size_gib.value,
        "confidence": {letter: counted[letter] for letter in _SURE},
    }


def _quantities(section: Section, prefix: str = "") -> Iterator[tuple[str, Quantity]]:
    """Yield every number of a chip file with its dotted key."""
    for key, value in section:
        if isinstance(value, Quantity):
            yield f"{prefix}{key}", value
        elif isinstance(value, Section):
            yield from _quantities(value, f"{prefix}{key}.")
