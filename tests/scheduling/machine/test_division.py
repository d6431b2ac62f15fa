"""Where programs are cut, and what is set aside for it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autostream.scheduling.machine.division import divide, divide_around
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.problem import Mode, Problem, Task
from tests.scheduling.problems import comm, cube, problem, problems, vector


def layers(count: int, *, extra: tuple[str, ...] = ()) -> Problem:
    """Diamonds in a row: a norm, a cube beside a vector task, an add; then what `extra` edges connect."""
    tasks, edges = [], []
    for n in range(count):
        tasks += [vector(f"norm{n}", 10), cube(f"cube{n}", 60), vector(f"vec{n}", 40), vector(f"add{n}", 10)]
        edges += [f"norm{n}>cube{n}>add{n}", f"norm{n}>vec{n}>add{n}"]
        if n:
            edges += [f"add{n - 1}>norm{n}", f"add{n - 1}>add{n}"]
    return problem(tasks, [*edges, *extra])


def names(given: Problem) -> tuple[list[list[str]], list[str]]:
    """The tasks between the cuts, region by region, and what was set aside."""
    instance = Instance.of(given)
    division = divide(instance)
    regions = [[instance.names[task] for task in segment.inner] for segment in division.regions]
    return regions, [instance.names[task] for task in division.aside]


def test_each_layer_is_a_region() -> None:
    regions, aside = names(layers(3))
    assert regions == [["cube0", "vec0"], ["cube1", "vec1"], ["cube2", "vec2"]]
    assert aside == []


def test_the_parts_of_equal_layers_are_equal() -> None:
    instance = Instance.of(layers(5))
    forms = [segment.part(instance).form() for segment in divide(instance).regions]
    # The first layer has no residual connection from before.
    assert len(set(forms)) == 2
    assert len(set(forms[1:])) == 1


def test_a_prologue_and_dead_ends_are_set_aside() -> None:
    given = layers(4)
    beside = problem(
        [vector("rope", 2), *given.tasks, vector("write", 2)],
        [f"{edge.before}>{edge.after}" for edge in given.precedences] + [f"rope>vec{n}" for n in range(4)] + ["vec0>write"],
    )
    regions, aside = names(beside)
    assert regions == [[f"cube{n}", f"vec{n}"] for n in range(4)]
    assert aside == ["rope", "write"]


def written(count: int, *, work: int = 0, time: int = 1) -> Problem:
    """Layers whose cube kernel writes its result once more, on its stream; that ends nowhere and takes `work` vector cores."""
    given = layers(count)
    tasks = [replace(task, cluster=f"k{task.name[4:]}") if task.name.startswith("cube") else task for task in given.tasks]
    ends = [Task(name=f"write{n}", modes=(Mode(duration=time, aiv=work),), cluster=f"k{n}") for n in range(count)]
    edges = [f"{edge.before}>{edge.after}" for edge in given.precedences]
    return problem([*tasks, *ends], [*edges, *(f"cube{n}>write{n}" for n in range(count))])


def test_ends_that_need_nothing_are_set_aside_though_their_cluster_is_not() -> None:
    regions, aside = names(written(6))
    assert regions == [[f"cube{n}", f"vec{n}"] for n in range(6)]
    assert aside == [f"write{n}" for n in range(6)]


def test_ends_that_keep_their_stream_longer_than_a_sync_stay_with_their_cluster() -> None:
    sync = written(6).sync
    assert len(names(written(6, time=sync))[1]) == 6
    assert names(written(6, time=sync + 1))[1] == []


def test_ends_that_need_cores_stay_with_their_cluster() -> None:
    regions, aside = names(written(6, work=8))
    assert aside == []
    assert len(regions) == 1


def test_ends_that_need_nothing_are_set_aside_where_that_opens_no_cut_either() -> None:
    """Two chains side by side have none. An exact search closes few tasks as they are."""
    for length, ends in ((10, []), (14, ["write"])):
        tasks = [kind(f"{kind.__name__}{n}", time) for kind, time in ((cube, 6), (vector, 5)) for n in range(length)]
        chains = [">".join(f"{kind.__name__}{n}" for n in range(length)) for kind in (cube, vector)]
        end = Task(name="write", modes=(Mode(duration=1),))
        assert names(problem([*tasks, end], [*chains, "cube3>write"]))[1] == ends


def test_a_prologue_that_does_not_fit_beside_the_first_region_comes_back() -> None:
    """With the mask there is more to do on the vector cores before the end of the first layer than it takes without."""
    given = layers(12)
    edges = [f"{edge.before}>{edge.after}" for edge in given.precedences]
    tasks = [vector("mask", 25), vector("late", 3), *given.tasks]
    beside = problem(tasks, [*edges, *(f"mask>vec{n}" for n in range(12)), *(f"late>vec{n}" for n in range(6, 12))])
    regions, aside = names(beside)
    assert regions == [["mask", "norm0", "cube0", "vec0"], *([f"cube{n}", f"vec{n}"] for n in range(1, 12))]
    assert aside == ["late"]
    instance = Instance.of(beside)
    assert [instance.names[task] for task in divide(instance).opening] == ["mask"]


def test_what_lies_between_two_cuts_is_not_set_aside() -> None:
    """A short branch of one layer stands in the way of no cut."""
    given = layers(12)
    edges = [f"{edge.before}>{edge.after}" for edge in given.precedences]
    tasks = [vector("rope", 2), *given.tasks[:2], vector("branch", 3), *given.tasks[2:]]
    beside = problem(tasks, [*edges, *(f"rope>vec{n}" for n in range(12)), "norm0>branch>add0"])
    regions, aside = names(beside)
    assert regions[0] == ["cube0", "branch", "vec0"]
    assert aside == ["rope"]


def test_what_is_too_long_to_set_aside_stays_and_forbids_the_cuts_it_spans() -> None:
    given = layers(4)
    tasks = [cube("long", 200), *given.tasks]
    beside = problem(tasks, [f"{edge.before}>{edge.after}" for edge in given.precedences] + ["long>add1"])
    regions, aside = names(beside)
    assert aside == []
    assert "long" in regions[0] and "norm1" in regions[0]
    assert regions[1:] == [["cube2", "vec2"], ["cube3", "vec3"]]


def test_a_collective_that_spans_a_cut_forbids_it() -> None:
    given = layers(2)
    tasks = [*given.tasks[:4], comm("reduce", 90), *given.tasks[4:]]
    edges = [f"{edge.before}>{edge.after}" for edge in given.precedences] + ["cube0>reduce>add1"]
    regions, aside = names(problem(tasks, edges))
    assert aside == []
    assert len(regions) == 1 and "reduce" in regions[0]


def test_a_cluster_is_never_cut() -> None:
    tasks = [vector("a", 5, cluster="k"), cube("b", 9), vector("c", 9), vector("d", 5, cluster="k"), cube("e", 5)]
    regions, _ = names(problem(tasks, ["a>b>d", "a>c>d", "d>e"]))
    assert regions == [["a", "b", "c", "d"]]


def test_neighbouring_cuts_of_one_cluster_may_be_divided() -> None:
    tasks = [vector("a", 5), cube("b", 9), vector("c", 9), vector("d", 5, cluster="d"), vector("e", 5, cluster="d")]
    regions, _ = names(problem(tasks, ["a>b>d", "a>c>d", "d>e"]))
    assert regions == [["b", "c"]]


@given(problems(most=14))
def test_segments_cover_the_core_and_cuts_are_ordered_with_everything_in_it(given: Problem) -> None:
    instance = Instance.of(given)
    division = divide(instance)
    core = [task for segment in division.segments for task in segment.tasks if task != segment.entry]
    first = division.segments[0].tasks[0] if division.segments else None
    covered = {*core, *division.aside, *([] if first is None else [first])}
    assert covered == set(range(len(instance)))
    after: list[set[int]] = [set() for _ in range(len(instance))]
    for task in reversed(range(len(instance))):
        for successor in instance.after[task]:
            after[task] |= {successor, *after[successor]}
    everyone = covered - set(division.aside)
    for segment in division.segments:
        for cut in {segment.entry, segment.exit} - {None}:
            assert all(other == cut or other in after[cut] or cut in after[other] for other in everyone)


@given(problems(most=14), st.data())
def test_anything_may_be_set_aside(given: Problem, data: st.DataObject) -> None:
    instance = Instance.of(given)
    units = data.draw(st.sets(st.sampled_from(range(len(instance.members)))))
    aside = sorted(task for unit in units for task in instance.members[unit])
    division = divide_around(instance, aside)
    assert list(division.aside) == aside
    assert sorted({task for segment in division.segments for task in segment.tasks} | {*aside}) == list(range(len(instance)))


@given(problems(most=14))
def test_segments_of_one_kind_are_equal_as_instances(given: Problem) -> None:
    instance = Instance.of(given)
    division = divide(instance)
    forms = [segment.part(instance).form() for segment in division.segments]
    assert [division.parts[kind].form() for kind in division.kinds] == forms
    assert len(division.parts) == len(set(forms))
