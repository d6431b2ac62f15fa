"""The timelines of a report as one static SVG picture: in a notebook, in a README, wherever no script runs.

Before and after stand above each other on one time axis, with a lane per stream, a bar per operator in the colour of its unit and
an arrow per wait between streams; names and times are told when the pointer rests on a bar. Inside a page the text takes the
page's colour; as a file of its own the picture follows the reader's light or dark scheme.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from autostream.report.occupancy import Run, given, lanes, shown
from autostream.report.wording import change, duration, operator, plural, verdict_line

if TYPE_CHECKING:
    from autostream.report.schema import Document  # which shows itself by way of this module

WIDTH = 960
_LEFT, _RIGHT, _TOP = 112, 14, 6
_TITLE, _LANE, _BAR, _PANEL_GAP = 24, 32, 20, 12
_AXIS, _LINE = 24, 18
#: Operators narrower than this, in pixels, share a bar with their neighbours: a picture does not grow with the model.
_NARROW = 1.5
#: More arrows than these hide what they are about; then the picture says how many it leaves out.
_ARROWS = 80
#: Pixels that a letter takes, on average and generously.
_LETTER = 6.2
_TICKS = 8

#: Fill and ink by unit; both are readable on white and on black. `OTHER` is for steps that are no operator of the graph.
OTHER = "other"
_COLOURS = {
    "cube": ("#4c86ec", "#0b1220"),
    "vector": ("#e8862a", "#1c1002"),
    "mixed": ("#a87be0", "#150a24"),
    "comm": ("#2aa88a", "#03150f"),
    "host": ("#8f9aa5", "#101418"),
    "free": ("#b0b8c0", "#101418"),
    OTHER: ("#b0b8c0", "#101418"),
}
_SAVED = "#2aa85f"
#: Only where the picture is a document of its own is the root an svg element; inside a page none of this applies.
_STYLE = (
    "svg:root{color:#1b1f24}svg:root .page{fill:#fff}"
    "@media (prefers-color-scheme:dark){svg:root{color:#e6e9ed}svg:root .page{fill:#14171b}}"
)
#: Characters that XML cannot hold.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Element = ET.Element


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    """One timeline: what is written above it, its operators by start, and its streams from top to bottom."""

    title: str
    runs: tuple[Run, ...]
    streams: tuple[str, ...]
    #: Waits between streams, ``(before, after)`` with what is told about each.
    waits: tuple[tuple[Run, Run, str], ...] = ()

    @property
    def end(self) -> int:
        """When the last operator ends, ns."""
        return max((run.end for run in self.runs), default=0)

    @property
    def height(self) -> int:
        """Pixels."""
        return _TITLE + _LANE * len(self.streams)


def timeline_svg(document: Document) -> str:
    """Return the timelines of a document as an SVG of `WIDTH` pixels; the same document gives the same text.

    A plan is drawn below the graph as it was given, a graph without a plan alone. Waits are drawn for the timeline that the
    document shows.
    """
    panels = _panels(document)
    end = max((panel.end for panel in panels), default=0)
    if not end:
        return _empty(f"No timeline: {document.verdict.reason}")
    tops = list(itertools.accumulate((panel.height + _PANEL_GAP for panel in panels), initial=_TOP))
    bottom = tops.pop() - _PANEL_GAP
    root = _root(bottom + _AXIS + 2 * _LINE + 6, verdict_line(document))
    _axis(root, end, tops[0] + _TITLE, bottom)
    for panel, top in zip(panels, tops, strict=True):
        _draw(root, panel, top, end)
    if len(panels) > 1:
        _draw_saved(root, panels[0].end, panels[-1], tops[-1], end)
    _legend(root, panels, bottom + _AXIS + _LINE - 4)
    _text(
        root,
        _LEFT,
        bottom + _AXIS + 2 * _LINE - 4,
        f"Chip {document.verdict.chip}; {document.provenance.basis}",
        size=11,
        faint=True,
    )
    return ET.tostring(root, encoding="unicode")


def _panels(document: Document) -> list[_Panel]:
    before, after = given(document), shown(document)
    if document.shows == "unscheduled":
        return [_panel(document, "As written" if document.verdict.code == "as-written" else "As given", after)]
    title = "Refused plan" if document.shows == "refused" else "Scheduled"
    drawn = [_Panel(title=_title("As given", before), runs=before, streams=lanes(before)), _panel(document, title, after)]
    return [panel for panel in drawn if panel.runs]


def _panel(document: Document, title: str, runs: tuple[Run, ...]) -> _Panel:
    """Return the timeline that the document's edges are about."""
    at = {run.row.name: run for run in runs}
    waits = [
        (at[edge.before], at[edge.after], f"{edge.after} waits for {edge.before} ({edge.kind.value})")
        for edge in document.edges
        if edge.before in at and edge.after in at
    ]
    told = _title(title, runs)
    if document.shows in ("scheduled", "refused"):
        told += f" ({change(document.verdict.gain)})"
    if len(waits) > _ARROWS:
        told += f"; {plural(len(waits), 'wait')} between streams, not drawn"
        waits = []
    return _Panel(title=told, runs=runs, streams=lanes(runs), waits=tuple(waits))


def _title(what: str, runs: Sequence[Run]) -> str:
    return f"{what}: {duration(max((run.end for run in runs), default=0))} simulated"


def _draw(root: Element, panel: _Panel, top: int, end: int) -> None:
    _text(root, _LEFT, top + 15, panel.title, size=13, bold=True)
    for number, stream in enumerate(panel.streams):
        y = top + _TITLE + number * _LANE
        name = _text(root, _LEFT - 10, y + 18, _cut(stream, _LEFT - 16), size=12, anchor="end")
        _tell(name, stream)
        _add(root, "rect", x=_LEFT, y=y + 4, width=_px(WIDTH - _LEFT - _RIGHT), height=_BAR, fill="currentColor", opacity="0.06")
        for bar in _bars([run for run in panel.runs if run.stream == stream], end):
            _draw_bar(root, bar, y + 4, end)
    for before, after, told in panel.waits:
        _draw_wait(root, panel, top, (before, after, told), end)


def _bars(runs: Iterable[Run], end: int) -> list[list[Run]]:
    """Group the operators of one stream: those that are too narrow to be told apart are one bar."""
    bars: list[list[Run]] = []
    for run in runs:
        if bars and _at(run.end, end) - _at(bars[-1][0].start, end) <= _NARROW:
            bars[-1].append(run)
        else:
            bars.append([run])
    return bars


def _draw_bar(root: Element, runs: Sequence[Run], y: int, end: int) -> None:
    x = _at(runs[0].start, end)
    width = max(0.5, _at(runs[-1].end, end) - x)
    fill, ink = _COLOURS[_unit(max(runs, key=lambda run: run.end - run.start))]
    outline = {"stroke": ink, "stroke_opacity": "0.35", "stroke_width": "0.5"} if width > 4 else {}
    bar = _add(root, "rect", x=_px(x), y=y, width=_px(width), height=_BAR, fill=fill, **outline)
    if len(runs) > 1:
        _tell(bar, f"{len(runs)} operators, {duration(runs[0].start)} to {duration(runs[-1].end)}")
        return
    (run,) = runs
    row = run.row
    spent = f"{duration(run.end - run.start)}, {duration(run.start)} to {duration(run.end)}"
    _tell(
        bar,
        f"{row.name}\n{row.target} ({_unit(run)})\n{spent} simulated{f'{chr(10)}{row.module_path}' if row.module_path else ''}",
    )
    label = _cut(operator(row.target).removeprefix("aten."), width - 6)
    if label:
        written = _text(root, x + width / 2, y + 14, label, size=10.5, anchor="middle")
        written.set("fill", ink)
        written.set("pointer-events", "none")


def _draw_wait(root: Element, panel: _Panel, top: int, wait: tuple[Run, Run, str], end: int) -> None:
    before, after, told = wait
    lane, target = panel.streams.index(before.stream), panel.streams.index(after.stream)
    down = target > lane
    x1, x2 = _at(before.end, end), _at(after.start, end)
    y1 = top + _TITLE + lane * _LANE + 4 + (_BAR if down else 0)
    y2 = top + _TITLE + target * _LANE + 4 + (0 if down else _BAR)
    middle, tail = (y1 + y2) / 2, -4 if down else 4
    group = _add(root, "g", opacity="0.75")
    _tell(group, told)
    curve = f"M{_px(x1)} {y1}C{_px(x1)} {_px(middle)} {_px(x2)} {_px(middle)} {_px(x2)} {y2}"
    _add(group, "path", d=curve, fill="none", stroke="currentColor", stroke_width="1.2")
    _add(group, "path", d=f"M{_px(x2 - 3)} {y2 + tail}L{_px(x2 + 3)} {y2 + tail}L{_px(x2)} {y2}Z", fill="currentColor")


def _draw_saved(root: Element, before: int, panel: _Panel, top: int, end: int) -> None:
    """Mark the time between the end of the plan and that of the graph as given."""
    if panel.end >= before:
        return
    x, width = _at(panel.end, end), _at(before, end) - _at(panel.end, end)
    y, height = top + _TITLE + 1, _LANE * len(panel.streams)
    saved = _add(root, "rect", x=_px(x), y=y, width=_px(width), height=height, fill=_SAVED, fill_opacity="0.22", stroke=_SAVED)
    told = f"{duration(before - panel.end)} saved"
    _tell(saved, told)
    if width > _LETTER * len(told):
        _text(root, x + width / 2, y + height / 2 + 4, told, size=11, anchor="middle")


def _axis(root: Element, end: int, top: int, bottom: int) -> None:
    step = _step(end)
    for time in range(0, end + 1, step):
        x = _px(_at(time, end))
        _add(root, "line", x1=x, x2=x, y1=top, y2=bottom + 4, stroke="currentColor", stroke_opacity="0.16")
        if _at(time, end) < WIDTH - 40:
            _text(root, _at(time, end), bottom + 16, _tick(time), size=10.5, anchor="middle", faint=True)


def _step(end: int) -> int:
    """Return the smallest of 1, 2, 5, 10, ... ns that gives at most `_TICKS` steps."""
    size = 1
    for factor in itertools.cycle((2, 2.5, 2)):
        if end <= _TICKS * size:
            break
        size = int(size * factor)
    return size


def _tick(ns: int) -> str:
    return f"{ns / 1e6:g} ms" if ns >= 10_000_000 else f"{ns / 1e3:g} us"


def _legend(root: Element, panels: Sequence[_Panel], y: int) -> None:
    used = {_unit(run) for panel in panels for run in panel.runs}
    x = float(_LEFT)
    for unit in _COLOURS:
        if unit in used:
            _add(root, "rect", x=_px(x), y=y - 9, width=10, height=10, fill=_COLOURS[unit][0])
            _text(root, x + 15, y, unit, size=11, faint=True)
            x += 34 + _LETTER * len(unit)
    if any(panel.waits for panel in panels):
        _add(root, "path", d=f"M{_px(x + 4)} {y - 10}V{y - 2}", stroke="currentColor", stroke_width="1.2")
        _add(root, "path", d=f"M{_px(x + 1)} {y - 4}L{_px(x + 7)} {y - 4}L{_px(x + 4)} {y}Z", fill="currentColor")
        _text(root, x + 14, y, "wait between streams", size=11, faint=True)


def _unit(run: Run) -> str:
    return run.row.unit.value if run.row.unit else OTHER


def _at(ns: int, end: int) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * ns / end


def _cut(text: str, width: float) -> str:
    """Return as much of a text as fits; nothing rather than a stub."""
    room = int(width / _LETTER)
    if len(text) <= room:
        return text
    return f"{text[: room - 1]}…" if room >= 4 else ""


def _empty(text: str) -> str:
    root = _root(_LINE + 16, text)
    _text(root, 12, 22, text, size=13)
    return ET.tostring(root, encoding="unicode")


def _root(height: int, told: str) -> Element:
    root = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {WIDTH} {height}",
            "width": str(WIDTH),
            "height": str(height),
            "style": "max-width:100%;height:auto",
            "font-family": "system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif",
            "role": "img",
            "aria-label": _legal(told),
        },
    )
    ET.SubElement(root, "style").text = _STYLE
    page = _add(root, "rect", width=WIDTH, height=height, fill="none")
    page.set("class", "page")
    return root


def _text(
    parent: Element, x: float, y: float, text: str, *, size: float, anchor: str = "start", bold: bool = False, faint: bool = False
) -> Element:
    found = _add(parent, "text", x=_px(x), y=_px(y), font_size=size, fill="currentColor")
    if anchor != "start":
        found.set("text-anchor", anchor)
    if bold:
        found.set("font-weight", "600")
    if faint:
        found.set("fill-opacity", "0.72")
    found.text = _legal(text)
    return found


def _tell(element: Element, text: str) -> None:
    """Say something when the pointer rests on an element; a title is its first child."""
    title = ET.Element("title")
    title.text = _legal(text)
    element.insert(0, title)


def _add(parent: Element, tag: str, **attributes: float | str) -> Element:
    return ET.SubElement(parent, tag, {key.replace("_", "-"): str(value) for key, value in attributes.items()})


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)
