from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from autostream.errors import InputError
from autostream.program import Finding, Severity
from autostream.suppressions import as_yaml, judge, load_suppressions

TODAY = date(2026, 6, 1)


def finding(
    kind: str = "race", steps: tuple[str, ...] = ("relu", "mm_1"), streams: tuple[str, ...] = ("1", "default")
) -> Finding:
    return Finding(kind=kind, severity=Severity.ERROR, steps=steps, streams=streams, explanation="because\nof it", remedy="mend")


def entries(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "accepted.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("entry", "meant"),
    [
        ("{kind: race, reason: r}", True),
        ("{kind: 'rac*', reason: r}", True),
        ("{kind: race, steps: [relu, 'mm_*'], reason: r}", True),
        ("{kind: race, steps: '*', reason: r}", True),
        ("{kind: race, steps: [relu, mm_1], streams: ['1', default], reason: r}", True),
        ("{kind: race, expires: 2026-06-01, reason: r}", True),
        ("{kind: deadlock, reason: r}", False),
        ("{kind: race, steps: [relu], reason: r}", False),  # says nothing of mm_1
        ("{kind: race, steps: [relu, mm], reason: r}", False),
        ("{kind: race, streams: ['1'], reason: r}", False),
        ("{kind: race, expires: 2026-05-31, reason: r}", False),
    ],
)
def test_what_an_entry_means(tmp_path: Path, entry: str, meant: bool) -> None:
    judged = judge([finding()], load_suppressions(entries(tmp_path, f"- {entry}\n")), today=TODAY)
    assert [suppressed.reason for suppressed in judged.suppressed] == (["r"] if meant else [])
    assert (finding() in judged.findings) is not meant
    notices = [notice.kind for notice in judged.findings if notice != finding()]
    expected = [] if meant else ["expired-suppression" if "expires" in entry else "stale-suppression"]
    assert notices == expected
    assert all(notice.severity is Severity.WARNING for notice in judged.findings if notice != finding())


def test_an_entry_for_one_stream_does_not_mean_what_names_no_stream(tmp_path: Path) -> None:
    unplaced = finding("event-never-recorded", ("tagged_event_wait",), ())
    for entry in ("{kind: '*', streams: ['1'], reason: r}", "{kind: '*', steps: [relu], reason: r}"):
        judged = judge([unplaced, finding(steps=())], load_suppressions(entries(tmp_path, f"- {entry}\n")), today=TODAY)
        assert unplaced in judged.findings and finding(steps=()) in judged.findings


def test_an_entry_that_holds_wins_over_one_that_has_expired(tmp_path: Path) -> None:
    text = "- {kind: race, reason: old, expires: 2020-01-01}\n- {kind: race, reason: new}\n"
    judged = judge([finding()], load_suppressions(entries(tmp_path, text)), today=TODAY)
    assert [suppressed.reason for suppressed in judged.suppressed] == ["new"]
    assert [notice.kind for notice in judged.findings] == ["expired-suppression"]


def test_notices_name_the_entry_and_its_reason(tmp_path: Path) -> None:
    text = "- {kind: race, steps: [relu], streams: ['1'], reason: a good one}\n"
    (notice,) = judge([], load_suppressions(entries(tmp_path, text)), today=TODAY).findings
    assert notice.explanation == "suppression 1, race (relu, stream 1), means no finding; its reason was: a good one"


@pytest.mark.parametrize("text", ["", "[]\n", "# nothing yet\n", "---\n"])
def test_an_empty_file_suppresses_nothing(tmp_path: Path, text: str) -> None:
    assert load_suppressions(entries(tmp_path, text)) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: race\nreason: r\n", r"accepted\.yaml:1: expected a list of entries"),
        ("race\n", r"accepted\.yaml:1: expected a list"),
        (
            "- {kind: race, reason: r}\n- kind: race\n  reson: r\n",
            r":3: entry 2: unknown key 'reson' \(did you mean 'reason'\?\)",
        ),
        ("- {kind: race, reason: r}\n- steps: [a]\n  reason: r\n", r":2: entry 2: 'kind' is missing"),
        ("- kind: race\n", r":1: entry 1: 'reason' is missing; every entry needs a kind and a reason"),
        ("- kind: race\n  reason: '  '\n", r":2: entry 1: 'reason': must not be empty"),
        ("- kind: race\n  reason:\n", r":2: entry 1: 'reason': .*valid string"),
        ("- kind: race\n  reason: r\n  steps: 3\n", r":3: entry 1: 'steps'"),
        ("- kind: race\n  reason: r\n  streams: [1]\n", r":3: entry 1: 'streams': .*valid string"),
        ("- kind: race\n  reason: r\n  expires: soon\n", r":3: entry 1: 'expires'"),
        ("- kind: race\n  reason: r\n  expires: 2026-13-45\n", r"accepted\.yaml: not YAML: month"),
        ("- kind: race\n  kind: deadlock\n  reason: r\n", r":2: entry 1 gives 'kind' twice"),
        ("- race\n", r":1: entry 1: expected a mapping"),
        ("- kind: [race\n", r"accepted\.yaml:\d: not YAML"),
        ("- {kind: race, reason: !!python/object:os.system x}\n", r":1: not YAML"),
        ("- &a [*a]\n", r"accepted\.yaml:1"),
        ("- a\n---\n- b\n", r"accepted\.yaml:2: not YAML"),
        ("\x00", r"accepted\.yaml: not YAML"),
    ],
)
def test_malformed_files_are_named_with_line_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_suppressions(entries(tmp_path, text))


def test_an_entry_that_still_has_no_reason_is_told(tmp_path: Path) -> None:
    (notice,) = judge([finding()], load_suppressions(entries(tmp_path, as_yaml([finding()]))), today=TODAY).findings
    assert notice.severity is Severity.WARNING
    assert notice.explanation.startswith("suppression 1, race (") and notice.explanation.endswith("), tells no reason")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the suppressions .*gone\.yaml.*No such file"):
        load_suppressions(tmp_path / "gone.yaml")
    with pytest.raises(InputError, match="cannot read the suppressions"):
        load_suppressions(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"cannot read the suppressions .*binary\.yaml"):
        load_suppressions(tmp_path / "binary.yaml")


def test_what_is_written_accepts_exactly_what_was_found(tmp_path: Path) -> None:
    odd = finding(steps=("a*b", "[c]?"), streams=("stream 'x'",))
    found = [finding(), odd, finding(), finding("order-unproven", (), ())]
    written = load_suppressions(entries(tmp_path, as_yaml(found)))
    assert [entry.reason for entry in written] == ["TODO"] * 3
    judged = judge(found, written, today=TODAY)
    assert len(judged.suppressed) == 4
    assert [notice.kind for notice in judged.findings] == ["unexplained-suppression"] * 3
    other = finding(steps=("aXb", "c!"), streams=("stream 'x'",))
    assert other in judge([other], written, today=TODAY).findings
    assert load_suppressions(entries(tmp_path, as_yaml([]))) == ()


def test_notices_about_suppressions_are_not_accepted_in_turn(tmp_path: Path) -> None:
    stale = judge([], load_suppressions(entries(tmp_path, "- {kind: race, reason: r}\n")), today=TODAY).findings
    assert load_suppressions(entries(tmp_path, as_yaml(stale))) == ()
