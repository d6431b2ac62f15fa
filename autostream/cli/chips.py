"""What ``autostream chips`` shows: the shipped chip files, every number of one chip with its source, a file made from an ini."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from autostream.cost import chip_names, json_schema, load_chip
from autostream.cost.chips.datafile import Quantity, Section
from autostream.errors import InputError

if TYPE_CHECKING:
    from autostream.cli.session import Session
    from autostream.cost import Chip

_SURE = {"S": "agreeing sources", "L": "one source", "U": "conflicting or assumed"}
#: The unit at the end of a key; a key without one is a plain factor or count.
_UNITS = {
    "_gb_per_s": "GB/s",
    "_gb_per_s_by_ranks": "GB/s",
    "_mhz": "MHz",
    "_kib": "KiB",
    "_mib": "MiB",
    "_gib": "GiB",
    "_us": "us",
    "_flop_per_cycle_per_core": "flop/cycle/core",
    "_bytes_per_cycle_per_core": "B/cycle/core",
    "_bytes_per_cycle_per_aic_core": "B/cycle/core",
    "_bytes_per_block": "B/block",
    "_elements": "elements",
    "_cores": "cores",
    "_devices": "devices",
    "_ranks": "ranks",
}
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
    table.add_column("By confidence", no_wrap=True)
    table.add_column("Also for", overflow="fold")
    for chip in map(load_chip, chip_names()):
        row = _summary(chip)
        sure = " ".join(f"{letter}{count}" for letter, count in row["confidence"].items())
        numbers = (row[key] for key in ("aic_cores", "aiv_cores", "clock_mhz", "l2_mib", "hbm_gib"))
        cells = (chip.name, *(f"{number:g}" for number in numbers), sure, ", ".join(chip.aliases))
        table.add_row(*(Text(cell) for cell in cells))
    return Group(table, Text(f"{_LEGEND}. 'autostream chips NAME' shows every number and its source."))


def _one_chip(chip: Chip) -> Group:
    table = Table(title=f"Chip {chip.name} (file {chip.digest})", title_justify="left", title_style="bold")
    table.add_column("Number", overflow="fold")
    table.add_column("Value", justify="right", no_wrap=True)
    table.add_column("Unit", no_wrap=True)
    table.add_column("Sure", no_wrap=True)
    table.add_column("Source", overflow="fold")
    for path, quantity in _quantities(chip):
        source = f"{quantity.source} ({quantity.note})" if quantity.note else quantity.source
        table.add_row(*(Text(cell) for cell in (path, f"{quantity.value:.10g}", _unit(path), quantity.confidence, source)))
    lines = [_LEGEND, f"Network of a node: {chip.comm.node.shape.replace('_', ' ')}"]
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


def _unit(path: str) -> str:
    """Return the unit that a dotted key names; the last part may be a number of ranks."""
    parts = path.split(".")
    key = "_" + (parts[-2] if parts[-1].isdecimal() and len(parts) > 1 else parts[-1])
    return _UNITS.get(max((end for end in _UNITS if key.endswith(end)), key=len, default=""), "")


def _quantities(section: Section | Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Quantity]]:
    """Yield every number of a chip file with its dotted key."""
    for key, value in section.items() if isinstance(section, Mapping) else section:
        if isinstance(value, Quantity):
            yield f"{prefix}{key}", value
        if isinstance(value, (Section, Mapping)):
            yield from _quantities(value, f"{prefix}{key}.")


def schema() -> dict[str, Any]:
    """Return the JSON Schema of chip files, which editors and validators read."""
    return json_schema()


def refuse_mixture(name: str | None, ini: Path | None, out: Path | None, *, schema: bool, force: bool = False) -> None:
    """Refuse options that do not go together.

    Raises:
        InputError: more than one thing to do, a file for something that is not made, or one that is there and `force` is not set.
    """
    wanted = [text for text, given in (("NAME", name), ("--from-ini", ini), ("--schema", schema)) if given]
    if len(wanted) > 1:
        raise InputError(f"chips: {' and '.join(wanted)} do not go together; give one of them")
    if out is not None and ini is None:
        raise InputError("chips: --out names the file that --from-ini makes; give both")
    if out is not None and out.suffix.lower() not in (".yaml", ".yml"):
        raise InputError(f"chips: --out {str(out)!r}: the name of a chip file ends with .yaml or .yml")
    if out is not None and out.exists() and not force:
        raise InputError(f"chips: --out {str(out)!r} exists; give another name, or overwrite it with --force")


def make(session: Session, ini: Path, out: Path | None, *, json: bool) -> None:
    """Make a chip file of a CANN platform_config ini, into a file or on stdout, and say what it rests on.

    Raises:
        InputError: the ini cannot be used, or the file cannot be written.
    """
    from autostream.cost.chips.chipfile import to_yaml
    from autostream.cost.chips.platform_ini import from_ini

    made = from_ini(ini)
    counted = _summary(made.chip)["confidence"]
    text = to_yaml(made.chip, f"{made.chip.name}, from {ini.name}; what that does not hold is carried over from {made.base}.")
    if out is not None:
        from autostream.report.files import write

        write(out, text)
    if json:
        data = made.chip.model_dump(mode="json")
        session.print_json({"base": made.base, "chip": data, "file": str(out) if out is not None else None})
    elif out is None:
        session.print_text(text)
    session.tell(
        f"{made.chip.name}: {counted['L']} numbers from {ini.name}, {counted['U']} carried over from {made.base} or capped"
        + (f"; written to {out}: use it as --chip {out}" if out is not None else "")
    )
