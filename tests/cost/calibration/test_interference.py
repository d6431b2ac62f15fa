"""What kernels cost each other while they run together: found in profiles with a known answer, not claimed without evidence."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autostream.chips import cost_model
from autostream.cli import main
from autostream.cli.calibrate import interference
from autostream.cost import RooflineModel, load_chip
from autostream.cost.calibration.beside import Company, observe
from autostream.cost.calibration.calibrate import calibrate
from autostream.cost.calibration.interference import Evidence, Measured, applied, measure
from autostream.cost.calibration.transfers import read_transfers
from autostream.cost.model import Breakdown, Cost, Machine, Resources, Tier
from autostream.errors import InputError
from autostream.graph.model import Op
from autostream.profiles import Core, Kernel, Profile, read_profile
from autostream.profiles.intervals import Interval, union
from autostream.profiles.reader import read_text
from autostream.program import simulate
from tests.cost.kernels import add, matmul, profile
from tests.cost.together import Tape, compute_beside_collectives, cube_beside_vector
from tests.profiles.files import table
from tests.program.programs import program, step


class Shares:
    """Prices at which every kernel wants the same share of the memory."""

    def __init__(self, hbm: int = 0, contention: int = 1000) -> None:
        self.machine = Machine(name="toy", aic=24, aiv=48, sync=0, sync_error=0.0, hbm_contention=contention)
        self._hbm = hbm

    def estimate(self, op: Op) -> Cost:
        resources = Resources(hbm=self._hbm)
        return Cost(duration=1, breakdown=Breakdown(), resources=resources, tier=Tier.ANALYTIC, error=0.0)

    def fingerprint(self) -> str:
        return "shares"


def measured(
    given_profile: Profile, *, hbm: int = 0, contention: int = 1000, least: Evidence | None = None
) -> dict[Company, Measured]:
    observed = [observe(given_profile, read_transfers(given_profile))]
    return {one.company: one for one in measure(observed, Shares(hbm, contention), least)}


# -- who ran beside whom ----------------------------------------------------------------------------------------------


def companies(*kernels: Kernel, transfers: tuple[Interval, ...] | None = None) -> list[tuple[str, str, int]]:
    found = observe(profile(*kernels), transfers)
    return [(one.kernel.type, one.company.name, one.together) for one in found]


CUBE = replace(matmul(64, 64, 64, 1000), stream=2)
VECTOR = replace(add(64, 64, 800), stream=3)
COLLECTIVE = replace(add(64, 64, 10_000), type="hcom_allReduce_", core=Core.COMMUNICATION, blocks=0)


def test_a_kernel_is_alone_where_nothing_on_another_stream_runs() -> None:
    assert companies(CUBE, replace(VECTOR, start=1000)) == [("MatMulV3", "ALONE", 0), ("Add", "ALONE", 0)]
    assert companies(CUBE, replace(VECTOR, start=995)) == [("MatMulV3", "ALONE", 0), ("Add", "ALONE", 0)]
    # What runs on no core is no company.
    assert companies(CUBE, replace(VECTOR, core=Core.AI_CPU)) == [("MatMulV3", "ALONE", 0)]


def test_cube_beside_vector() -> None:
    assert companies(CUBE, VECTOR) == [("MatMulV3", "OTHER_UNIT", 800), ("Add", "OTHER_UNIT", 800)]
    # Too little of the product's time, all of the addition's.
    assert companies(CUBE, replace(VECTOR, duration=400)) == [("Add", "OTHER_UNIT", 400)]
    two = [replace(VECTOR, duration=400), replace(VECTOR, start=400, duration=400)]
    assert companies(CUBE, *two)[0] == ("MatMulV3", "OTHER_UNIT", 800)


@pytest.mark.parametrize(
    "other",
    [
        replace(CUBE, stream=3),
        replace(VECTOR, core=Core.MIX_AIC),
        replace(VECTOR, core=Core.UNKNOWN),
    ],
)
def test_what_may_wait_for_cores_tells_nothing(other: Kernel) -> None:
    assert companies(CUBE, other) == []


def test_company_of_two_kinds_or_of_two_at_once_tells_nothing() -> None:
    assert [kind for kind, _, _ in companies(CUBE, VECTOR, replace(VECTOR, stream=4))] == []
    assert companies(CUBE, VECTOR, COLLECTIVE, transfers=((0, 10_000),)) == []


def test_a_collective_tells_by_what_it_moves() -> None:
    assert companies(CUBE, COLLECTIVE, transfers=((100, 900),)) == [("MatMulV3", "TRANSFER", 800)]
    assert companies(CUBE, COLLECTIVE, transfers=((0, 300), (500, 900), (950, 5000))) == [("MatMulV3", "TRANSFER", 750)]
    assert companies(CUBE, COLLECTIVE, transfers=((5000, 9000),)) == [("MatMulV3", "WAITING", 1000)]
    assert companies(CUBE, COLLECTIVE, transfers=((0, 100),)) == []
    assert companies(CUBE, COLLECTIVE) == [("MatMulV3", "UNTOLD", 1000)]
    # A trace of another run, or without the tasks of this collective.
    assert companies(CUBE, COLLECTIVE, transfers=((50_000, 90_000),)) == [("MatMulV3", "UNTOLD", 1000)]
    # One on vector cores takes cores from the kernel.
    assert companies(CUBE, replace(COLLECTIVE, blocks=16), transfers=((0, 1000),)) == []


_times = st.tuples(st.integers(0, 60), st.integers(0, 25))


@given(st.lists(st.tuples(_times, st.sampled_from([CUBE, VECTOR, COLLECTIVE]), st.integers(1, 3)), max_size=10))
def test_company_is_that_of_every_nanosecond(rows: list[tuple[tuple[int, int], Kernel, int]]) -> None:
    kernels = [replace(kind, start=start, duration=length, stream=stream) for (start, length), kind, stream in rows]
    moves = union((kernel.start, kernel.end) for kernel in kernels if kernel.communicates and kernel.duration)
    for one in observe(profile(*kernels), moves):
        span = range(one.kernel.start, one.kernel.end)
        others = [other for other in kernels if other.stream != one.kernel.stream]
        beside = [[other for other in others if other.start <= at < other.end] for at in span]
        if one.company is Company.ALONE:
            assert not any(beside)
        else:
            assert one.together == sum(map(bool, beside)) >= len(span) / 2
            kinds = {other.core for at in beside for other in at}
            assert len(kinds) == 1 and one.kernel.core not in kinds
            assert (one.company is Company.TRANSFER) == (kinds == {Core.COMMUNICATION})


# -- when collectives move ----------------------------------------------------------------------------------------------


def test_tasks_with_a_size_are_transfers(tmp_path: Path) -> None:
    tape = Tape()
    tape.collective(0, 90_000, [(40_000, 10_000), (45_000, 10_000), (70_000, 5_000)])
    found = tape.read(tmp_path)
    start = found.kernels[0].start
    assert read_transfers(found) == ((start + 40_000, start + 55_000), (start + 70_000, start + 75_000))


@pytest.mark.parametrize(
    "text", ["[]", '{"traceEvents": [3, {"ph": "X"}]}', '[{"name": "process_name", "pid": 1, "args": {"name": "HCCL"}}]']
)
def test_a_trace_without_tasks_tells_nothing(text: str, tmp_path: Path) -> None:
    found = Tape(rows=cube_beside_vector(1.0, steps=1).rows).read(tmp_path, trace=False)
    assert read_transfers(found) is None
    (tmp_path / "trace_view.json").write_text(text)
    assert read_transfers(found) is None


def test_a_text_has_no_trace_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tape = compute_beside_collectives(1.2, steps=1)
    monkeypatch.chdir(tape.write(tmp_path))
    (tmp_path / "kernel_details.csv").unlink()
    assert read_transfers(read_text(table(tape.rows))) is None


def test_a_trace_of_two_devices_tells_nothing(tmp_path: Path) -> None:
    found = compute_beside_collectives(1.2, steps=1).read(tmp_path)
    trace = tmp_path / "trace_view.json"
    assert read_transfers(found)
    trace.write_text(trace.read_text()[:-1] + ', {"name": "process_name", "pid": 8, "args": {"name": "HCCL"}}]')
    assert read_transfers(found) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "not JSON"),
        ("7", "not a Chrome trace"),
        (
            '[{"name": "process_name", "pid": 1, "args": {"name": "HCCL"}}, {"ph": "X", "pid": 1, "args": {"size(Byte)": 4}}]',
            "a task of a collective",
        ),
    ],
)
def test_a_bad_trace_costs_one_factor_and_says_so(text: str, message: str, tmp_path: Path) -> None:
    found = compute_beside_collectives(1.2).read(tmp_path)
    (tmp_path / "trace_view.json").write_text(text)
    with pytest.raises(InputError, match=f"trace_view.json: {message}"):
        read_transfers(found)
    calibration = calibrate([found], "910B2")
    assert any("when collectives moved data is not known" in note and message in note for note in calibration.notes)
    assert calibration.chip.interference == load_chip("910B2").interference


# -- how much slower ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slowdown", [1.0, 1.08, 1.3, 2.0])
def test_a_known_slowdown_of_cube_beside_vector_is_recovered(slowdown: float, tmp_path: Path) -> None:
    found = measured(cube_beside_vector(slowdown).read(tmp_path))[Company.OTHER_UNIT]
    assert found.value == pytest.approx(slowdown, rel=0.02)
    assert found.shapes == 20 and found.kernels >= 100
    assert found.p75 is not None and found.factor is not None and found.factor <= found.p75 < 1.04 * slowdown
    assert found.spread is not None and found.spread < 0.05


@pytest.mark.parametrize("slowdown", [1.0, 1.07, 1.4])
def test_a_known_slowdown_beside_collectives_is_recovered(slowdown: float, tmp_path: Path) -> None:
    found = measured(compute_beside_collectives(slowdown).read(tmp_path))
    assert found[Company.TRANSFER].value == pytest.approx(slowdown, rel=0.02)
    assert found[Company.WAITING].factor == pytest.approx(1, abs=0.02)
    assert (found[Company.TRANSFER].kernels, found[Company.TRANSFER].shapes) == (100, 20)


def test_a_few_noisy_kernels_do_not_move_the_median(tmp_path: Path) -> None:
    tape = compute_beside_collectives(1.2, noise=0.08, steps=9)
    for row in tape.rows[::11]:
        if row["Name"].startswith("aclnn"):
            row["Duration(us)"] = str(float(row["Duration(us)"]) * 0.6)
    assert measured(tape.read(tmp_path))[Company.TRANSFER].value == pytest.approx(1.2, rel=0.04)


def makespan(machine: Machine, hbm: int = 0) -> int:
    """Return how long the simulator takes for a cube and a vector kernel side by side, of 100 us each."""
    held = {"cube": Resources(aic=24, hbm=hbm), "vector": Resources(aiv=48, hbm=hbm)}
    costs = {
        name: Cost(duration=100_000, breakdown=Breakdown(), resources=one, tier=Tier.MEASURED, error=0.0)
        for name, one in held.items()
    }
    return simulate(program([step("cube"), step("vector", "side")]), costs, machine).makespan


@pytest.mark.parametrize("hbm", [0, 300, 600, 900])
def test_the_factor_is_the_one_the_simulator_was_given(hbm: int, tmp_path: Path) -> None:
    """Also where both kernels use the memory: what the simulator takes for that is not counted twice."""
    machine = replace(Shares(contention=1100).machine, cube_vector_slowdown=1150)
    slowdown = makespan(machine, hbm) / 100_000
    found = measured(cube_beside_vector(slowdown).read(tmp_path), hbm=hbm, contention=1100)[Company.OTHER_UNIT]
    assert found.value == pytest.approx(1.15, rel=0.02)


def test_faster_in_company_is_noise_and_taken_for_one(tmp_path: Path) -> None:
    calibration = calibrate([cube_beside_vector(0.95).read(tmp_path)], "910B2")
    quantity = calibration.chip.interference.cube_vector_slowdown
    assert quantity.value == 1.0 and "measured 0.9" in str(quantity.note) and "taken as 1" in str(quantity.note)
    assert next(interference(calibration)).startswith("cube beside vector: x 1.00 (measured 0.9")


@pytest.mark.parametrize(
    "tape",
    [
        cube_beside_vector(1.5, steps=2),  # each shape beside others twice
        cube_beside_vector(1.5, shapes=(1, 2)),  # two shapes of each unit
        cube_beside_vector(1.5, noise=0.4),  # alone they scatter too much
    ],
)
def test_with_too_little_nothing_is_claimed(tape: Tape, tmp_path: Path) -> None:
    found = tape.read(tmp_path)
    one = measured(found)[Company.OTHER_UNIT]
    assert one.factor is one.p75 is one.spread is one.value is None
    assert one.seen > 0 and one.why.startswith(f"too few: {one.seen} kernels")
    before = load_chip("910B2")
    calibration = calibrate([found], "910B2")
    assert calibration.chip.interference == before.interference
    line = next(interference(calibration))
    assert line.startswith("cube beside vector: too few: ")
    assert line.endswith(f"; {before.interference.cube_vector_slowdown.value:g} stays (assumed)")


def test_the_check_refuses_what_has_another_cause(tmp_path: Path) -> None:
    found = measured(compute_beside_collectives(1.3, waiting=1.2).read(tmp_path))
    assert found[Company.TRANSFER].factor is None
    assert re.match(r"x 1\.\d+ is not claimed: beside collectives that moved nothing", found[Company.TRANSFER].why)
    assert found[Company.WAITING].factor == pytest.approx(1.2, rel=0.02)


def test_without_a_trace_nothing_is_claimed_of_collectives(tmp_path: Path) -> None:
    one = measured(compute_beside_collectives(1.3).read(tmp_path, trace=False))[Company.TRANSFER]
    assert one.factor is None and "200 more beside collectives of which no trace tells when they moved data" in one.why


def test_kernels_are_compared_within_one_profile(tmp_path: Path) -> None:
    # The second profile is of a slower device: pooled, half of the kernels alone would be compared with the wrong ones.
    first = cube_beside_vector(1.2).read(tmp_path)
    slower = tuple(replace(kernel, start=2 * kernel.start, duration=2 * kernel.duration) for kernel in first.kernels)
    observed = [observe(first), observe(replace(first, kernels=slower))]
    between, _, _ = measure(observed, Shares())
    assert between.value == pytest.approx(1.2, rel=0.02)
    assert between.shapes == 20 and between.kernels == 2 * measure(observed[:1], Shares())[0].kernels


def test_what_company_costs_is_not_in_the_prices_too(tmp_path: Path) -> None:
    """A calibration with kernels beside others predicts kernels alone as one without them does."""
    mixed = cube_beside_vector(2.0).read(tmp_path)
    by_company = {one.kernel: one.company for one in observe(mixed)}
    plain = tuple(kernel for kernel in mixed.kernels if by_company.get(kernel) is Company.ALONE)
    found, wanted = calibrate([mixed], "910B2"), calibrate([replace(mixed, kernels=plain)], "910B2")
    factors = {name: one.factor.value for name, one in found.chip.calibration.items()}
    assert factors == {name: pytest.approx(one.factor.value, rel=0.1) for name, one in wanted.chip.calibration.items()}
    assert found.used == len(mixed.kernels) and any("left out of the fit" in note for note in found.notes)
    assert not any("left out" in note for note in wanted.notes)


# -- the chip file ------------------------------------------------------------------------------------------------------


def test_the_calibrated_file_loads_and_slows_the_simulator_down(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    folder = cube_beside_vector(1.4).write(tmp_path / "profile")
    assert main(["calibrate", str(folder), "--chip", "910B2", "-o", str(path)]) == 0
    chip, before = load_chip(path), load_chip("910B2")
    factor = chip.interference.cube_vector_slowdown
    assert factor.value > before.interference.cube_vector_slowdown.value
    assert factor.confidence == "L" and "kernel_details.csv (sha256" in factor.source
    assert chip.interference.compute_comm_slowdown == before.interference.compute_comm_slowdown
    assert chip.interference.hbm_contention == before.interference.hbm_contention
    machine = cost_model(str(path)).machine
    assert machine.cube_vector_slowdown == round(1000 * factor.value)
    assert makespan(machine) == pytest.approx(100_000 * factor.value, rel=0.001)
    assert makespan(machine) > makespan(before.machine)


def both(between: float, beside: float, spread: float) -> list[Measured]:
    def one(company: Company, factor: float) -> Measured:
        return Measured(
            company=company, seen=90, seen_time=9, kernels=90, shapes=9, time=9, factor=factor, p75=factor + 0.1, spread=spread
        )

    return [one(Company.OTHER_UNIT, between), one(Company.TRANSFER, beside)]


def test_the_shared_error() -> None:
    chip = load_chip("910B2")
    assumed = chip.interference.relative_error.value
    found = applied(chip, both(1.05, 1.3, 0.03), "profile p").interference
    assert (found.cube_vector_slowdown.value, found.compute_comm_slowdown.value) == (1.05, 1.3)
    assert (found.relative_error.value, found.relative_error.confidence, found.relative_error.source) == (0.03, "L", "profile p")
    # While one is assumed the error assumed with it is the least.
    assert applied(chip, both(1.05, 1.3, 0.03)[:1], "profile p").interference.relative_error.value == assumed
    assert applied(chip, both(1.05, 1.3, 0.4)[:1], "profile p").interference.relative_error.value == 0.4
    assert applied(chip, [], "profile p") is chip


def test_a_factor_beyond_what_a_file_takes_is_the_largest_one() -> None:
    chip = applied(load_chip("910B2"), both(50.0, 1.0, 0.1), "profile p")
    assert chip.interference.cube_vector_slowdown.value == 10


def test_what_calibrate_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    folder = compute_beside_collectives(1.07).write(tmp_path / "profile")
    assert main(["calibrate", str(folder), "--chip", "910B2", "-o", str(tmp_path / "mine.yaml")]) == 0
    out = capsys.readouterr().out
    told = r"compute beside collectives: x 1\.0[678] \(p75 1\.\d\d\) from 100 kernels of 20 shapes; was 1\.2 \(assumed\)"
    assert re.search(told, out)
    assert re.search(r"beside collectives that moved nothing: x (0\.99|1\.0[01]) from 100 kernels", out)
    assert "cube beside vector: too few: 0 kernels in 0.0 ms" in out and "1.1 stays (assumed)" in out


# -- public profiles ----------------------------------------------------------------------------------------------------


def test_what_a_public_profile_supports(shared: Path) -> None:
    """100 kernels of a ResNet ran beside collectives; while data moved only 2 did, so that nothing can be claimed.

    Compared anyway, those beside a collective that moved nothing took longer than alone: other causes are that large.
    """
    found = read_profile(shared / "data" / "profiles" / "resnet_ddp_level1")
    transfers = read_transfers(found)
    assert transfers is not None
    observed = observe(found, transfers)
    counted = Counter(one.company for one in observed)
    assert counted == {Company.ALONE: 85, Company.WAITING: 97, Company.TRANSFER: 2}
    model = RooflineModel(load_chip("910B2"))
    assert all(one.factor is None for one in measure([observed], model))
    single = Evidence(repeats=1, shapes=1, kernels=1, time=1)
    _, beside, check = measure([observed], model, single)
    assert (beside.seen, beside.kernels, check.kernels, check.shapes) == (2, 0, 26, 20)
    assert check.factor is not None and check.factor > 1.05
