"""Random graphs with in-place writes: whatever is planned is proved, and what is written down is what was planned."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.dumps import schedule_dump
from autostream.program import EdgeKind, Severity, happens_before, read_ascend_ir, verify
from autostream.program.reading.ge_dump import load_ops
from tests.dumps.handwritten import node

_BIG = (2048, 2048)
#: What there is more of is there more than once.
_KINDS = ("MatMul", "MatMul", "Exp", "Exp", "Exp", "Add", "Reshape", "Identity", "Assign", "HcomAllReduce", "Odd")


@st.composite
def dumps(draw: st.DrawFn) -> str:
    """A graph of products, vector operators, views, collectives and assignments to its two inputs."""
    parts = [node("x", "Data", shape=_BIG), node("w", "Data", shape=_BIG)]
    names = ["x", "w"]
    for number in range(draw(st.integers(6, 14))):
        kind = draw(st.sampled_from(_KINDS))
        name = f"n{number}"
        near = ["x", "w", "x", "w", *names]  # wide rather than deep
        first, second = draw(st.sampled_from(near)), draw(st.sampled_from(near))
        inputs = [f"{first}:0", f"{second}:0"] if kind in ("MatMul", "Add", "Reshape") else [f"{first}:0"]
        control = [f"{draw(st.sampled_from(names[2:]))}:-1"] if len(names) > 2 and draw(st.booleans()) and kind == "Exp" else []
        if kind == "Assign":
            target = draw(st.sampled_from(["x", "w"]))
            parts.append(node(name, kind, [f"{target}:0", f"{first}:0"], _BIG, ports=["ref", "value"], out="ref"))
        else:
            parts.append(node(name, kind, [*inputs, *control], _BIG))
        names.append(name)
    return "".join([*parts, node("out", "NetOutput", [f"{name}:0" for name in names[-2:]])])


@given(text=dumps())
@settings(max_examples=40)
def test_a_plan_is_proved_and_written_as_planned(text: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "graph.txt"
        path.write_text(text)
        found = schedule_dump(path, chip="910B2", options={"strict": True, "strategy": "greedy", "min_gain": 0.0})
        given_program = read_ascend_ir(path)
        assert sum(cost.duration for cost in found.costs.values()) >= found.verdict.scheduled_ns or not found.verdict.accepted
        if not found.verdict.accepted:
            assert found.rewritten is None and all(entry.label is None for entry in found.nodes)
            return
        assert found.rewritten is not None
        again = Path(folder) / "again.txt"
        again.write_bytes(found.rewritten)
        program = read_ascend_ir(again, in_order=True)
    known = {finding.explanation for finding in verify(given_program)}
    errors = [finding for finding in verify(program) if finding.severity is Severity.ERROR]
    assert {finding.explanation for finding in errors} <= known  # the dump's own waits for what has no task
    assert {step.name for step in program.steps} == {step.name for step in given_program.steps}
    # Every conflict of the dump as it was given is still decided the same way.
    before = happens_before(program)
    tasks = [step for step in given_program.steps if step.stream is not None]
    for number, late in enumerate(tasks):
        for early in tasks[:number]:
            clash = {*early.writes} & {*late.reads, *late.writes} or {*early.reads} & {*late.writes}
            if clash:
                assert before.before(early.name, late.name), (early.name, late.name, clash)
    added = {(edge.before, edge.after) for edge in program.edges if edge.kind is EdgeKind.CONTROL} - {
        (edge.before, edge.after) for edge in given_program.edges
    }
    assert added == {(wait, entry.node) for entry in found.nodes for wait in entry.waits}
    assert {op.name: op.label for op in load_ops(found.rewritten) if op.label} == {
        entry.node: entry.label for entry in found.nodes if entry.label
    }
