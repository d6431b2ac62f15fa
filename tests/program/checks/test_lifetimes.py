from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autostream.errors import VerificationError
from autostream.graph import Op, OpGraph, Storage, Unit, Why
from autostream.graph.capture import capture
from autostream.program import (
    Edge,
    EdgeKind,
    Lifetime,
    Placement,
    Semantics,
    Severity,
    StreamProgram,
    growth_findings,
    happens_before,
    lifetimes,
    memory_check,
    peak_memory,
    place,
    returned_storages,
    reuse_findings,
    verify,
)
from autostream.program.reading.fx import read_fx
from tests.program.programs import Graph, aten, found, program, step

CAPTURE = Semantics.CAPTURE


def _storages(kind: str = "intermediate", **sizes: int) -> dict[str, Storage]:
    return {name: Storage(name=name, nbytes=nbytes, kind=kind) for name, nbytes in sizes.items()}


def _life(given_program: StreamProgram, name: str, returned: Sequence[str] = ()) -> Lifetime:
    """The lifetime of one storage, where every storage has ten bytes."""
    names = {storage: 10 for s in given_program.steps for storage in (*s.reads, *s.writes)}
    return next(life for life in lifetimes(given_program, _storages(**names), returned=returned) if life.storage == name)


# -- lifetimes ------------------------------------------------------------------------------------------------------------


def test_on_one_stream_memory_is_free_after_the_last_use() -> None:
    chain = program([step("a", writes=["x"]), step("b", reads=["x"], writes=["y"]), step("c", reads=["y"]), step("d")])
    assert lifetimes(chain, _storages(x=3, y=5)) == (
        Lifetime(
            storage="x",
            nbytes=3,
            creator="a",
            stream="default",
            last_uses=(("default", "b"),),
            reusable_from="c",
            born=0,
            last=1,
            freed=2,
        ),
        Lifetime(
            storage="y",
            nbytes=5,
            creator="b",
            stream="default",
            last_uses=(("default", "c"),),
            reusable_from="d",
            born=1,
            last=2,
            freed=3,
        ),
    )
    assert not any(life.extended for life in lifetimes(chain, _storages(x=3, y=5)))


#: x is made on the default stream and used on s; what follows depends on the edges back.
_FORKED = [step("make", writes=["x"]), step("use", "s", reads=["x"]), step("more", "s"), step("p"), step("q"), step("end")]


@pytest.mark.parametrize(
    ("control", "reusable_from"),
    [
        ([], None),
        (["use>q"], "q"),
        (["more>p"], "p"),  # an edge that leaves later on the same stream will do
        (["more>end", "use>q"], "q"),
        (["more>p", "use>q"], "p"),  # ... and may arrive earlier
    ],
)
def test_ge_keeps_what_another_stream_uses_up_to_the_next_edge_back(control: list[str], reusable_from: str | None) -> None:
    life = _life(program(_FORKED, data=["make>use"], control=control), "x")
    assert life.reusable_from == reusable_from
    assert life.last_uses == (("default", "make"), ("s", "use"))
    assert life.freed == {None: 6, "p": 3, "q": 4}[reusable_from]
    assert life.extended


def test_an_edge_back_that_leaves_before_the_last_use_does_not_count() -> None:
    steps = [step("make", writes=["x"]), step("early", "s", reads=["x"]), step("late", "s", reads=["x"]), step("end")]
    assert _life(program(steps, data=["make>early", "make>late"], control=["early>end"]), "x").reusable_from is None


def test_data_is_an_edge_back_also_through_a_view() -> None:
    steps = [step("make", writes=["x"]), step("use", "s", reads=["x"]), step("view", None), step("p"), step("end"), step("z")]
    life = _life(program(steps, data=["make>use", "use>view", "view>end"]), "x")
    assert (life.reusable_from, life.extended) == ("end", True)


def test_a_way_back_over_a_third_stream_does_not_count() -> None:
    steps = [step("make", writes=["x"]), step("use", "s", reads=["x"]), step("via", "t"), step("end")]
    detour = program(steps, data=["make>use"], control=["use>via", "via>end"])
    assert happens_before(detour).before("use", "end")
    assert _life(detour, "x").reusable_from is None


def test_every_using_stream_must_have_come_back() -> None:
    steps = [
        step("make", writes=["x"]),
        step("u", "s", reads=["x"]),
        step("v", "t", reads=["x"]),
        step("p"),
        step("q"),
        step("r"),
    ]
    data = ["make>u", "make>v"]
    assert _life(program(steps, data=data, control=["u>p", "v>q"]), "x").reusable_from == "q"
    assert _life(program(steps, data=data, control=["u>p"]), "x").reusable_from is None
    own = [*steps[:5], step("r", reads=["x"]), step("z")]
    assert _life(program(own, data=data, control=["u>p", "v>q"]), "x").reusable_from == "z"
    assert not _life(program(own, data=data, control=["u>p", "v>q"]), "x").extended


def test_an_edge_onto_an_identity_counts_where_it_holds_without_the_identity() -> None:
    steps = [
        step("make", writes=["x"]),
        step("use", "s", reads=["x"]),
        step("id", kind="Identity", reads=["w"], writes=["y"]),
        step("next", writes=["z"]),
        step("end", reads=["y"]),
    ]
    linked = program(steps, data=["make>use", "id>end"], control=["use>id"])
    assert _life(linked, "x").reusable_from == "end"


def test_in_capture_modes_memory_is_free_once_the_last_use_is_issued() -> None:
    life = _life(program(_FORKED, event=["make>use", "use>end"], semantics=CAPTURE), "x")
    assert (life.reusable_from, life.freed, life.extended) == ("p", 2, False)


def test_what_the_graph_returns_is_never_free() -> None:
    for semantics in Semantics:
        life = _life(program(_FORKED, semantics=semantics), "x", returned=["x"])
        assert (life.reusable_from, life.last, life.freed, life.extended) == (None, 5, 6, False)


def test_only_intermediates_that_a_task_writes_are_counted() -> None:
    steps = [
        step("const", None, writes=["c"]),
        step("a", reads=["i", "w", "c"], writes=["x", "i", "unknown"]),
        step("b", reads=["x", "never_written"]),
    ]
    storages = _storages(x=1, c=2, never_written=4, unused=8) | _storages("input", i=16, w=32) | _storages("state", r=64)
    memory = peak_memory(program(steps), storages)
    assert [life.storage for life in lifetimes(program(steps), storages)] == ["x"]
    assert (memory.peak, memory.serial_peak) == (1, 1)
    nothing = peak_memory(program([]), storages)
    assert (nothing.peak, nothing.pools, nothing.at, nothing.growth) == (0, (), "", 1.0)


def test_steps_are_issued_as_the_waits_demand() -> None:
    steps = [step("use", reads=["x"]), step("make", writes=["x"]), step("end")]
    listed = program(steps, data=["make>use"], in_order=False)
    assert _life(listed, "x").reusable_from == "end"
    for cyclic in (
        replace(listed, in_order=True),
        replace(listed, edges=(*listed.edges, Edge(before="use", after="make", kind=EdgeKind.CONTROL))),
    ):
        with pytest.raises(VerificationError, match="waits for itself"):
            peak_memory(cyclic, _storages(x=1))


# -- peaks ----------------------------------------------------------------------------------------------------------------


def test_pools_of_two_streams_are_not_merged() -> None:  # G08
    steps = [
        step("a", writes=["x"]),
        step("a2", reads=["x"]),
        step("b", "side", writes=["y"]),
        step("b2", "side", reads=["y"]),
        step("c", "side", writes=["z"]),
    ]
    memory = peak_memory(program(steps), _storages(x=10, y=7, z=4))
    assert [(pool.stream, pool.peak, pool.at) for pool in memory.pools] == [("default", 10, "a"), ("side", 7, "b")]
    assert (memory.peak, memory.serial_peak, memory.held, memory.at) == (17, 10, 10, "a")


def test_a_missing_join_raises_the_peak_and_names_the_largest_buffers_first() -> None:
    steps = [step("a", writes=["x", "y"]), step("u", "s", reads=["x", "y"]), step("p", writes=["z"]), step("q", reads=["z"])]
    sizes = _storages(x=10, y=20, z=25)
    joined = peak_memory(program(steps, data=["a>u"], control=["u>p"]), sizes)
    assert (joined.peak, joined.serial_peak, joined.at, joined.extended) == (30, 30, "a", ())
    loose = peak_memory(program(steps, data=["a>u"]), sizes)
    assert (loose.peak, loose.serial_peak, loose.at) == (55, 30, "p")
    assert [life.storage for life in loose.extended] == ["y", "x"]


def test_independent_branches_all_at_once_take_all_their_memory() -> None:  # G12, G32
    def branches(streams: int) -> StreamProgram:
        steps, data = [], []
        for i in range(8):
            stream = "default" if i % streams == 0 else f"s{i % streams}"
            steps += [step(f"mm{i}", stream, writes=[f"m{i}"]), step(f"sum{i}", stream, reads=[f"m{i}"], writes=[f"r{i}"])]
            data += [f"mm{i}>sum{i}", f"sum{i}>join"]
        return program([*steps, step("join", reads=[f"r{i}" for i in range(8)], writes=["out"])], data=data)

    sizes = _storages(out=1, **{f"m{i}": 1000 for i in range(8)}, **{f"r{i}": 1 for i in range(8)})
    assert [peak_memory(branches(n), sizes).peak for n in (1, 2, 8)] == [1008, 2 * 1004, 8 * 1001]
    assert {peak_memory(branches(n), sizes).serial_peak for n in (1, 2, 8)} == {1008}


@pytest.mark.parametrize("depth", [1, 2, 8, 48])
def test_prefetched_gathers_are_counted_as_many_as_are_in_flight(depth: int) -> None:  # G25
    emitted, data, control = [], [], []
    for i in range(48 + depth):
        if i < 48:
            emitted.append(step(f"gather{i}", "hccl", writes=[f"w{i}"]))
            control += [f"layer{i - depth}>gather{i}"] if i >= depth else []
        if i >= depth - 1 and i - depth + 1 < 48:
            emitted.append(step(f"layer{i - depth + 1}", reads=[f"w{i - depth + 1}"]))
            data.append(f"gather{i - depth + 1}>layer{i - depth + 1}")
    prefetching = program(emitted, data=data, control=control)
    assert peak_memory(prefetching, _storages(**{f"w{i}": 100 for i in range(48)})).peak == depth * 100


@pytest.mark.usefixtures("npu_host")
def test_a_view_on_another_stream_keeps_the_whole_buffer() -> None:  # A20
    graph = Graph("a")
    (a,) = graph.inputs
    big = graph.call("big", aten.cat.default, [a, a, a, a])
    view = graph.call("slice", aten.slice.Tensor, big, 0, 0, 1)
    graph.enter("s")
    used = graph.call("used", aten.mul.Tensor, view, view)
    graph.exit()
    other = graph.call("other", aten.cat.default, [a, a, a, a])
    small = graph.call("small", aten.sum.default, other)
    module = graph.done(graph.call("join", aten.add.Tensor, used, small))
    read, known = read_fx(module), capture(module)
    memory = peak_memory(read, known.storages, returned=returned_storages(known))
    kept = [(life.storage, life.nbytes, life.reusable_from) for life in memory.extended]
    assert kept == [("big", 1024, "join"), ("slice_1", 32, "join")], "a slice may be a view or a copy"
    assert [(pool.stream, pool.peak, pool.at) for pool in memory.pools] == [
        ("default", 1024 + 32 + 1024 + 4, "small"),
        ("s", 32, "used"),
    ]
    assert memory.serial_peak == 1024 + 32 + 32


def test_returned_storages_are_looked_for_behind_views_and_tuple_access() -> None:
    graph = Graph("a", "b")
    a, b = graph.inputs
    total = graph.call("total", aten.add.Tensor, a, b)
    top = graph.call("top", aten.topk.default, total, 2)
    view = graph.call("view", aten.view.default, graph.call("mul", aten.mul.Tensor, a, b), [64])
    known = capture(graph.done(graph.item("values", top, 0), view, a))
    assert returned_storages(known) == ("top.0", "top.1", "mul")


def test_what_a_returned_view_only_waits_for_is_not_returned() -> None:
    dag = nx.DiGraph()
    dag.add_edge("made", "view", why=frozenset({Why.DATA, Why.USER}))
    dag.add_edge("earlier", "view", why=frozenset({Why.EFFECT}))
    units = {"made": Unit.CUBE, "earlier": Unit.VECTOR, "view": Unit.FREE}
    ops = {name: _op(name, unit) for name, unit in units.items()}
    assert returned_storages(OpGraph(dag=dag, ops=ops, storages={}, outputs=("view",))) == ("made",)


def _op(name: str, unit: Unit) -> Op:
    writes = () if unit is Unit.FREE else (name,)
    return Op(
        name=name,
        target=name,
        unit=unit,
        position=0,
        inputs=(),
        outputs=(),
        flops=0,
        bytes_read=0,
        bytes_written=0,
        writes=writes,
    )


# -- the simulated allocator ----------------------------------------------------------------------------------------------


def _placed(**sizes: tuple[int, int, int]) -> list[int]:
    """Offsets of buffers on one stream, each (bytes, born, freed), in the order of creation."""
    lives = [
        Lifetime(
            storage=name,
            nbytes=nbytes,
            creator="",
            stream="s",
            last_uses=(),
            reusable_from=None,
            born=born,
            last=freed - 1,
            freed=freed,
        )
        for name, (nbytes, born, freed) in sizes.items()
    ]
    return [placement.offset for placement in place(lives)]


def test_the_allocator_takes_the_first_hole_that_fits() -> None:
    assert _placed(a=(10, 0, 2), b=(10, 1, 9), c=(4, 2, 9), d=(6, 3, 9), e=(1, 4, 9)) == [0, 10, 0, 4, 20]
    assert _placed(a=(10, 0, 2), b=(10, 1, 9), c=(11, 2, 9), d=(0, 2, 9), e=(10, 3, 9)) == [0, 10, 20, 0, 0]


def test_neighbouring_holes_become_one_and_the_end_of_the_pool_is_given_back() -> None:
    assert _placed(a=(5, 0, 3), b=(5, 1, 4), c=(5, 2, 5), d=(1, 3, 9), e=(14, 5, 9)) == [0, 5, 10, 0, 1]
    assert _placed(a=(5, 0, 4), b=(5, 1, 3), c=(5, 2, 5), d=(9, 2, 9), e=(15, 5, 9)) == [0, 5, 10, 15, 0]
    assert _placed(a=(10, 0, 1), b=(11, 1, 9)) == [0, 0]


def test_only_placements_of_one_stream_overlap() -> None:
    life = _life(program(_FORKED), "x")
    here = Placement(life=life, offset=0)
    assert here.overlaps(Placement(life=life, offset=9)) and not here.overlaps(Placement(life=life, offset=10))
    assert not here.overlaps(Placement(life=life._replace(stream="s"), offset=0))


# -- reuse while another stream can still touch it ------------------------------------------------------------------------


def _scale_program(*events: str) -> StreamProgram:
    """A quantised branch: data and scale are made on the default stream and used on s, the default stream goes on allocating."""
    steps = [
        step("quant", writes=["q", "scale"]),
        step("matmul", "s", reads=["q"], writes=["h"]),
        step("swiglu", "s", reads=["h", "scale"], writes=["y"]),
        step("other", writes=["other"]),
        step("end", reads=["y", "other"], writes=["out"]),
    ]
    return program(steps, data=["quant>matmul", "quant>swiglu", "swiglu>end"], event=["quant>matmul", *events], semantics=CAPTURE)


_SCALE = _storages(q=64, scale=4, h=32, y=32, other=4, out=4)


def test_a_buffer_that_is_freed_under_a_side_stream_is_found() -> None:  # A16, A18
    findings = list(reuse_findings(_scale_program("swiglu>end"), _SCALE))
    assert {(f.kind, f.severity) for f in findings} == {("memory-reuse", Severity.ERROR)}
    assert [f.steps for f in findings] == [("matmul", "other"), ("swiglu", "other")]
    assert [f.streams for f in findings] == [("s", "default")] * 2
    assert findings[0].explanation == (
        "storage 'q' (64 bytes) goes back to the pool of stream 'default', which may give its memory to 'other' at 'other' "
        "while 'matmul' on stream 's' can still touch it; first fit gives it to 'other' at 'other'"
    )
    assert "'scale'" in findings[1].explanation
    assert findings[1].remedy.startswith("add an event from 'swiglu' to 'other', or use 'scale' once more on stream 'default'")


def test_the_example_is_a_buffer_that_really_gets_the_memory_too_early() -> None:
    sizes = _SCALE | _storages(other=64)  # takes the place of q, so that out takes that of scale
    loose = list(reuse_findings(_scale_program(), sizes))[1]
    assert loose.steps == ("swiglu", "other") and loose.explanation.endswith("; first fit gives it to 'out' at 'end'")
    joined = list(reuse_findings(_scale_program("swiglu>end"), sizes))[1]
    assert joined.steps == ("swiglu", "other") and "first fit" not in joined.explanation


def test_a_wait_before_the_next_allocation_mends_it() -> None:
    assert list(reuse_findings(_scale_program("swiglu>other"), _SCALE)) == []
    only_data = list(reuse_findings(_scale_program("matmul>other"), _SCALE))
    assert [f.steps for f in only_data] == [("swiglu", "other")]


def test_using_the_buffer_itself_after_the_join_mends_it_but_using_a_copy_does_not() -> None:  # A39
    def guarded(name: str) -> StreamProgram:
        steps = [
            step("make", writes=["t"]),
            step("clone", reads=["t"], writes=["copy"]),
            step("use", "s", reads=["t"]),
            step("other", writes=["other"]),
            step("guard", reads=[name]),
            step("last", writes=["last"]),
        ]
        return program(steps, event=["make>use", "use>guard"], semantics=CAPTURE)

    sizes = _storages(t=8, copy=8, other=8, last=8)
    assert list(reuse_findings(guarded("t"), sizes)) == []
    (finding,) = reuse_findings(guarded("copy"), sizes)
    assert finding.steps == ("use", "other") and "'t'" in finding.explanation


@pytest.mark.parametrize("nbytes", [1, 64, 1088, 10**9])
def test_a_reuse_is_found_at_any_size(nbytes: int) -> None:  # G21
    (finding,) = reuse_findings(_scale_program("matmul>other"), _SCALE | _storages(other=nbytes))
    assert finding.steps == ("swiglu", "other")


def test_a_clone_on_the_side_stream_needs_its_source_until_it_has_run() -> None:  # G14
    def cloned(stream: str, *events: str) -> StreamProgram:
        steps = [
            step("make", writes=["x"]),
            step("clone", stream, reads=["x"], writes=["xc"]),
            step("next", writes=["n"]),
            step("use", "s", reads=["xc"]),
            step("end", reads=["n"]),
        ]
        return program(steps, event=["use>end", *events], semantics=CAPTURE)

    sizes = _storages(x=8, xc=8, n=8)
    assert [f.steps for f in reuse_findings(cloned("s", "make>clone"), sizes)] == [("clone", "next")]
    assert list(reuse_findings(cloned("default", "clone>use"), sizes)) == []
    later = replace(cloned("default", "clone>use"), steps=(*cloned("default").steps[:-1], step("end", writes=["late"])))
    assert list(reuse_findings(later, sizes | _storages(late=8))) == []


def test_a_buffer_of_the_side_stream_that_the_default_stream_uses_is_held_to_the_same() -> None:
    def back(*events: str) -> StreamProgram:
        steps = [
            step("make", "s", writes=["x"]),
            step("use", reads=["x"]),
            step("next", "s", writes=["y"]),
            step("end", reads=["y"]),
        ]
        return program(steps, event=["make>use", "next>end", *events], semantics=CAPTURE)

    (finding,) = reuse_findings(back(), _storages(x=8, y=8))
    assert (finding.steps, finding.streams) == (("use", "next"), ("default", "s"))
    assert list(reuse_findings(back("use>next"), _storages(x=8, y=8))) == []
    assert list(reuse_findings(back(), _storages(x=8, y=8), returned=["x"])) == []
    assert list(reuse_findings(replace(back(), semantics=Semantics.GE), _storages(x=8, y=8))) == []


def test_several_streams_that_still_use_a_buffer_are_one_finding() -> None:
    steps = [step("make", writes=["x"]), step("u", "s", reads=["x"]), step("v", "t", reads=["x"]), step("next", writes=["y"])]
    (finding,) = reuse_findings(program(steps, event=["make>u", "make>v"], semantics=CAPTURE), _storages(x=8, y=8))
    assert (finding.steps, finding.streams) == (("u", "v", "next"), ("s", "t", "default"))
    assert "'u' on stream 's' and 'v' on stream 't'" in finding.explanation


# -- checks ---------------------------------------------------------------------------------------------------------------


def test_growth_beyond_the_factor_is_a_note() -> None:
    steps = [step("a", writes=["x", "y"]), step("u", "s", reads=["x", "y"]), step("p", writes=["z"]), step("q", reads=["z"])]
    memory = peak_memory(program(steps, data=["a>u"]), _storages(x=10, y=20, z=30))
    assert memory.growth == 2.0
    assert list(growth_findings(memory, 2.0)) == []
    (note,) = growth_findings(memory, 1.9)
    assert (note.kind, note.severity, note.steps, note.streams) == ("memory-growth", Severity.NOTE, ("p",), ("default",))
    assert note.explanation == (
        "buffers take 60 bytes, 2.00 times the 30 bytes of one stream; "
        "kept longer for another stream, the largest first: 'y' (20 bytes), 'x' (10 bytes)"
    )


def test_it_is_a_check_like_those_of_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    check = memory_check(_storages(x=4, y=4), factor=1.2)
    monkeypatch.setattr(importlib.import_module("autostream.program.checks.verify"), "_CHECKS", (check,))
    steps = [step("a", writes=["x"]), step("u", "s", reads=["x"]), step("p", writes=["y"]), step("end", reads=["y"])]
    assert found(verify(program(steps, event=["a>u", "u>end"], semantics=CAPTURE))) == ["memory-reuse"]
    assert found(verify(program(steps, data=["a>u"]))) == ["memory-growth"]
    assert verify(program(steps, data=["a>u"], control=["u>p"])) == ()


# -- properties -----------------------------------------------------------------------------------------------------------


@st.composite
def _programs(draw: st.DrawFn, semantics: Semantics) -> tuple[StreamProgram, dict[str, Storage]]:
    """Programs whose every value goes along data edges; in GE mode these order, so there is no race but by in-place writes."""
    count = draw(st.integers(1, 14))
    steps, edges, values = [], [], []
    for i in range(count):
        sources = sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else []
        behind = tuple(dict.fromkeys(name for source in sources for name in values[source]))
        stream = draw(st.sampled_from([None, "default", "default", "s", "t"]))
        kind = draw(st.sampled_from(["Add", "Add", "Add", "Identity"]))
        writes = (f"n{i}", *(behind[:1] if kind == "Add" and draw(st.booleans()) else ()))
        steps.append(step(f"n{i}", stream, kind=kind, reads=behind if stream else (), writes=writes if stream else ()))
        values.append(behind if stream is None else (f"n{i}", *behind) if kind == "Identity" else (f"n{i}",))
        edges += [Edge(before=f"n{source}", after=f"n{i}", kind=EdgeKind.DATA) for source in sources]
        kind_of_wait = EdgeKind.CONTROL if semantics is Semantics.GE else EdgeKind.EVENT
        waits = sorted(draw(st.sets(st.integers(0, i - 1), max_size=2))) if i else []
        edges += [Edge(before=f"n{wait}", after=f"n{i}", kind=kind_of_wait) for wait in waits]
    sizes = {f"n{i}": draw(st.integers(0, 4)) for i in range(count)}
    made = StreamProgram(semantics=semantics, steps=tuple(steps), edges=tuple(edges), in_order=True)
    return made, _storages(**sizes)


def _worlds(given_program: StreamProgram) -> list[tuple[set[str], set[tuple[str, str]]]]:
    """What may run, and which pairs are then ordered: with every Identity, and (GE) with none of them.

    An Identity that is gone has no place on its stream, but what it waited for goes before what waited for it.
    """
    stream = {s.name: s.stream for s in given_program.steps}
    ge = given_program.semantics is Semantics.GE
    worlds = []
    for gone in (set(), {s.name for s in given_program.steps if s.kind == "Identity"}) if ge else (set(),):
        graph = nx.DiGraph()
        graph.add_nodes_from(stream)
        for edge in given_program.edges:
            tasks = stream[edge.before] is not None and stream[edge.after] is not None
            if (ge and edge.kind is EdgeKind.DATA) or (tasks and edge.kind is not EdgeKind.DATA):
                graph.add_edge(edge.before, edge.after)
        for lane in given_program.streams().values():
            nx.add_path(graph, [s.name for s in lane if s.name not in gone])
        worlds.append(({name for name in stream if name not in gone}, set(nx.transitive_closure(graph).edges)))
    return worlds


def _accesses(given_program: StreamProgram) -> dict[str, list[str]]:
    touched: dict[str, list[str]] = {}
    for s in given_program.steps:
        for name in dict.fromkeys((*s.reads, *s.writes)):
            touched.setdefault(name, []).append(s.name)
    return touched


def _may_share(old: Lifetime, new: Lifetime) -> bool:
    """Whether any allocator could put the new buffer where the old one was."""
    return bool(old.nbytes and new.nbytes) and old.stream == new.stream and old.freed <= new.born


@given(_programs(Semantics.GE))
def test_under_the_rules_of_ge_no_memory_is_shared_by_unordered_accesses(case: tuple[StreamProgram, dict[str, Storage]]) -> None:
    given_program, storages = case
    assert list(reuse_findings(given_program, storages)) == []
    lives = lifetimes(given_program, storages)
    touched = _accesses(given_program)
    for runs, ordered in _worlds(given_program):
        for old in (life for life in lives if life.creator in runs):
            for new in (life for life in lives if life.creator in runs and _may_share(old, life)):
                pairs = [(u, v) for u in touched[old.storage] for v in touched[new.storage] if u in runs and v in runs]
                assert set(pairs) <= ordered, (old, new)


@given(_programs(Semantics.CAPTURE))
def test_in_capture_modes_exactly_the_buffers_that_can_be_overwritten_are_found(
    case: tuple[StreamProgram, dict[str, Storage]],
) -> None:
    given_program, storages = case
    lives, touched = lifetimes(given_program, storages), _accesses(given_program)
    ((_, ordered),) = _worlds(given_program)
    unsafe = [
        old.storage
        for old in lives
        if any((u, new.creator) not in ordered for new in lives if _may_share(old, new) for u in touched[old.storage])
    ]
    findings = list(reuse_findings(given_program, storages))
    assert [finding.explanation.split("'")[1] for finding in findings] == unsafe
    for finding in findings:
        *users, receiver = finding.steps
        assert users and not any((user, receiver) in ordered for user in users)


@given(st.sampled_from(Semantics).flatmap(_programs))
def test_the_allocator_never_gives_taken_memory(case: tuple[StreamProgram, dict[str, Storage]]) -> None:
    lives = lifetimes(*case)
    placements = place(lives)
    assert [placement.life for placement in placements] == list(lives)
    for i, one in enumerate(placements):
        for two in placements[:i]:
            if one.overlaps(two):
                assert two.life.freed <= one.life.born
                assert _may_share(two.life, one.life)
    for pool in peak_memory(*case).pools:
        ends = [p.offset + p.life.nbytes for p in placements if p.life.stream == pool.stream]
        assert max(ends) >= pool.peak


def _liveness_peak(given_program: StreamProgram, storages: Mapping[str, Storage]) -> int:
    """The textbook peak of the steps one after the other: what is made up to here and used from here on."""
    names = [s.name for s in given_program.steps]
    touched = {name: [names.index(user) for user in users] for name, users in _accesses(given_program).items()}
    return max(
        sum(storages[name].nbytes for name, places in touched.items() if min(places) <= i <= max(places))
        for i in range(len(names))
    )


@given(st.sampled_from(Semantics).flatmap(_programs), st.data())
def test_peaks_are_bounded_by_liveness_and_fall_with_every_join(
    case: tuple[StreamProgram, dict[str, Storage]], data: st.DataObject
) -> None:
    given_program, storages = case
    memory, classic = peak_memory(given_program, storages), _liveness_peak(given_program, storages)
    assert memory.serial_peak == classic
    assert memory.peak >= memory.held >= classic
    assert memory.peak == sum(pool.peak for pool in memory.pools)
    one_stream = replace(given_program, steps=tuple(s._replace(stream=s.stream and "default") for s in given_program.steps))
    serial = peak_memory(one_stream, storages)
    assert (serial.peak, serial.held, serial.serial_peak, serial.extended) == (classic, classic, classic, ())
    waits = [edge for edge in given_program.edges if edge.kind is not EdgeKind.DATA]
    dropped = data.draw(st.sets(st.sampled_from(waits))) if waits else set()
    loose = replace(given_program, edges=tuple(edge for edge in given_program.edges if edge not in dropped))
    without = peak_memory(loose, storages)
    assert without.peak >= memory.peak and without.held >= memory.held
    assert without.serial_peak == memory.serial_peak
