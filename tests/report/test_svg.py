"""The static picture of a report: what is drawn where, what is told, and that any report gives well-formed XML."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree as ET

import pytest

from autostream.program.model import Edge, EdgeKind
from autostream.report.document import Document
from autostream.report.schema import EdgeRow, OpRow
from autostream.report.svg import WIDTH, timeline_svg
from tests.report import samples

SVG = "{http://www.w3.org/2000/svg}"


def picture(document: Document) -> ET.Element:
    return ET.fromstring(timeline_svg(document))


def texts(root: ET.Element) -> list[str]:
    return ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]


def told(root: ET.Element) -> list[str]:
    return [node.text or "" for node in root.iter(f"{SVG}title")]


def bar(root: ET.Element, name: str, number: int = 0) -> ET.Element:
    """Return the bar of an operator: the first is in the graph as given, the second in the plan."""
    bars = [node for node in root.iter(f"{SVG}rect") for title in node if (title.text or "").partition("\n")[0] == name]
    return bars[number]


def at(node: ET.Element, *names: str) -> tuple[float, ...]:
    return tuple(float(node.get(name, "nan")) for name in names)


def one_stream(*rows: OpRow) -> Document:
    """Return a document without a plan that has these operators."""
    return samples.document(verdict=samples.declined(), after=None, program=None).model_copy(update={"ops": rows})


def op(name: str, start: int, end: int, stream: str = "default") -> OpRow:
    times = {"stream": stream, "start_ns": start, "end_ns": end}
    return OpRow(name=name, target="aten.mm.default", unit="cube", **times, **{f"before_{k}": v for k, v in times.items()})


def test_before_and_after_are_drawn_on_one_axis() -> None:
    root = picture(samples.document())
    titles = texts(root)
    assert "As given: 400.0 us simulated" in titles
    assert "Scheduled: 220.0 us simulated (-45.0 %)" in titles
    (x, width), (after_x, after_width) = at(bar(root, "mm"), "x", "width"), at(bar(root, "mm", 1), "x", "width")
    assert (x, width) == (after_x, after_width)
    assert at(bar(root, "exp", 1), "width")[0] == pytest.approx(width * 1.3, abs=0.2)  # 130 us, and mm takes 100
    assert at(bar(root, "mul", 1), "y")[0] > at(bar(root, "mm", 1), "y")[0] > at(bar(root, "add"), "y")[0]


def test_a_lane_carries_the_name_of_its_stream_and_a_bar_the_colour_of_its_unit() -> None:
    root = picture(samples.document())
    assert samples.SIDE in told(root) and texts(root).count("defaultdefault") == 2  # the name, and the same on the pointer
    fills = {name: bar(root, name).get("fill") for name in ("mm", "mm_1", "mul", "exp")}
    assert fills["mm"] == fills["mm_1"] != fills["mul"] == fills["exp"]
    assert {"cube", "vector", "wait between streams"} <= set(texts(root)) and "comm" not in texts(root)


def test_a_wait_is_an_arrow_from_the_end_of_one_operator_to_the_start_of_the_other() -> None:
    root = picture(samples.document())
    (group,) = [node for node in root.iter(f"{SVG}g") if "add waits for exp (data)" in told(node)]
    line = group.findall(f"{SVG}path")[0].get("d", "")
    numbers = [float(number) for number in re.findall(r"[\d.]+", line)]
    x, width = at(bar(root, "exp", 1), "x", "width")
    assert numbers[0] == pytest.approx(x + width, abs=0.2)
    assert numbers[-2] == pytest.approx(at(bar(root, "add", 1), "x")[0], abs=0.2)
    assert numbers[-1] < numbers[1]  # upwards, to the default stream


def test_what_is_saved_is_marked() -> None:
    root = picture(samples.document())
    assert "180.0 us saved" in texts(root)
    slower = samples.document(verdict=samples.declined(code="no-gain"), before=samples.after(), after=samples.before())
    assert not [text for text in texts(picture(slower)) if "saved" in text]
    assert "Refused plan: 400.0 us simulated (0.0 %)" in texts(picture(slower))


def test_a_graph_without_a_plan_is_drawn_alone_and_one_without_a_timeline_told() -> None:
    alone = picture(samples.document(verdict=samples.declined(), after=None, program=None))
    assert [text for text in texts(alone) if "simulated" in text] == ["As given: 400.0 us simulated"]
    nothing = picture(samples.document(verdict=samples.declined(), before=None, after=None, program=None))
    assert texts(nothing) == ["No timeline: every operator waits for the one before it."]


def test_the_streams_of_the_graph_as_given_have_their_waits_too() -> None:
    document = samples.document(
        verdict=samples.declined(), before=samples.after(), after=None, program=None, serial=samples.program()
    )
    assert [(edge.before, edge.after) for edge in document.edges] == [("exp", "add")]
    assert "add waits for exp (data)" in told(picture(document))


def test_it_says_that_it_is_simulated_and_for_which_chip() -> None:
    document = samples.document()
    assert f"Chip 910B2; {document.provenance.basis}" in texts(picture(document))


def test_the_same_document_gives_the_same_text() -> None:
    document = samples.document()
    assert timeline_svg(document) == timeline_svg(Document.from_json(document.to_json()))


def test_names_cannot_break_the_picture() -> None:
    name = '</title></svg><script>alert("x")</script>&\x00\x1b\ud800'
    document = one_stream(op(name, 0, 1_000), op("second", 1_000, 9_000, stream=name))
    text = timeline_svg(document)
    assert "<script" not in text
    assert any("script" in title for title in told(ET.fromstring(text)))
    text.encode("utf-8")


def test_operators_too_narrow_to_see_share_a_bar() -> None:
    many = [op(f"mm_{number}", 10 * number, 10 * number + 10) for number in range(20_000)]
    text = timeline_svg(one_stream(*many))
    assert len(text) < 200_000
    counts = [int(title.split()[0]) for title in told(ET.fromstring(text)) if re.match(r"\d+ operators,", title)]
    assert sum(counts) == len(many)


def test_a_gap_is_not_filled_by_a_shared_bar() -> None:
    root = picture(one_stream(op("first", 0, 10), op("second", 999_990, 1_000_000)))
    assert at(bar(root, "first"), "x", "width") == (112.0, 0.5)
    assert at(bar(root, "second"), "x")[0] > WIDTH - 20


def test_waits_that_would_hide_everything_are_counted_instead() -> None:
    rows = [op(f"mm_{number}", number, number + 1, stream=f"s{number % 2}") for number in range(200)]
    edges = tuple(
        EdgeRow(before=one.name, after=two.name, from_stream="s0", to_stream="s1", kind=EdgeKind.DATA)
        for one, two in itertools.pairwise(rows)
    )
    document = one_stream(*rows).model_copy(update={"edges": edges})
    root = picture(document)
    assert not list(root.iter(f"{SVG}g"))
    assert any("199 waits between streams, not drawn" in text for text in texts(root))


@pytest.mark.parametrize("end", [2, 3, 999, 123_456, 50_000_000, 7_000_000_000_000])
def test_the_axis_has_few_round_marks(end: int) -> None:
    marks = [text for text in texts(picture(one_stream(op("mm", 0, end)))) if re.fullmatch(r"[\d.e+-]+ (us|ms)", text)]
    assert 2 <= len(marks) <= 9 and len(set(marks)) == len(marks)
    assert marks[0].startswith("0 ")


def test_a_wait_for_what_takes_no_time_is_left_out() -> None:
    program = samples.program()
    edges = (*program.edges, Edge(before="view", after="mul", kind=EdgeKind.DATA))
    changed = type(program)(semantics=program.semantics, steps=program.steps, edges=edges, in_order=True)
    assert not [title for title in told(picture(samples.document(program=changed))) if "view" in title]


def test_a_file_of_its_own_follows_the_scheme_of_the_reader_and_a_page_is_left_alone() -> None:
    style = picture(samples.document()).findtext(f"{SVG}style") or ""
    rules = re.findall(r"([^{}]+)\{[^{}]*\}", style.replace("@media (prefers-color-scheme:dark){", ""))
    assert rules and all(rule.startswith("svg:root") for rule in rules)
    assert "prefers-color-scheme:dark" in style
