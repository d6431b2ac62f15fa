"""The notebooks are stored stripped, and run from a clean kernel without an error, with the outcome they are about."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.ipynb")))
#: What a stored notebook says of itself: nothing of the machine it was edited on.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
MOST_CELLS = 12

#: Run behind the last cell of each notebook, with and without torch_npu.
CHECKS = {
    "1_quick_start": """
assert result.verdict.accepted and result.verdict.scheduled_ns < result.verdict.serial_ns
assert found.name == "_softmax" and {"where", "time", "cost"} <= {title for title, _ in found.facts}
assert {path.name for path in paths} >= {"report.html", "report.json", "trace_view.json"}
""",
    "2_by_hand_and_automatic": """
assert not written.findings and "shared" in written.programs["fx"].streams()
assert (missing is None) == ("ascend_ir" in written.programs)
assert len(table) and (table["automatic"] <= table["one stream"]).all()
assert (table["no schedule can beat"] <= table[["by hand", "automatic"]].min(axis=1)).all()
""",
    "3_calibrate": """
assert len(known) == fitted.used == fitted.rows == len(kernels)
assert set(fitted.before) == set(fitted.after) == {"matmul", "elementwise"}
assert all(fitted.after[kind].median < fitted.before[kind].median for kind in fitted.before)
""",
    "4_check_by_hand": """
assert [finding.kind for finding in faulty.findings] == ["race"]
assert not mended.findings
last = autostream.inspect(Faulty(), inputs, suppressions=accepted)
assert not last.findings and [one.finding.kind for one in last.suppressed] == ["race"]
""",
    "5_extend": """
assert simple.verdict.strategy == "cube beside vector"
assert all(one.shows in ("scheduled", "refused") and one.verdict.code != "error" for one in (as_is, faster, simple))
assert faster.verdict.serial_ns < as_is.verdict.serial_ns == simple.verdict.serial_ns
assert faster.provenance.chip_digest.startswith("fast-memory-1/")
assert as_is.verdict.scheduled_ns <= simple.verdict.scheduled_ns
""",
}
#: Cells whose output is a drawn timeline.
DRAWN = {
    "1_quick_start": {"schedule"},
    "2_by_hand_and_automatic": {"inspect", "auto"},
    "3_calibrate": {"use"},
    "4_check_by_hand": {"finding", "mended", "suppressed"},
    "5_extend": {"model-ours", "model-mine", "strategy-mine"},
}


def read(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A folder for the kernel's own files."""
    with tempfile.TemporaryDirectory(prefix="as") as folder:
        yield Path(folder)


def run(name: str, cwd: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Execute a notebook and its check; return the outputs by cell id."""
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)  # the notebooks must not need it
    for variable in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(runtime))
    scratch = runtime / "tmp"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    notebook = read(name)
    notebook.cells.append(nbformat.v4.new_code_cell(CHECKS[name], id="check"))
    NotebookClient(notebook, kernel_name="python3", timeout=600, resources={"metadata": {"path": str(cwd)}}).execute()
    return {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


def shown(outputs: Any) -> str:
    """Return what the reader of some outputs sees: HTML where there is any, else text."""
    parts = [output.get("data", output) for output in outputs]
    return "\n".join(part.get("text/html") or part.get("text/plain") or part.get("text", "") for part in parts)


def check_run(name: str, outputs: dict[str, Any], cwd: Path) -> None:
    assert {ident for ident, of in outputs.items() if "<svg" in shown(of) and "simulated" in shown(of)} == DRAWN[name]
    complaints = [shown(of) for of in outputs.values() if any(output.get("name") == "stderr" for output in of)]
    assert not complaints
    assert not list(cwd.iterdir()), "a notebook must not write beside itself"


def test_every_notebook_has_its_check() -> None:
    assert set(NAMES) == set(CHECKS) == set(DRAWN)
    assert [name.partition("_")[0] for name in NAMES] == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_stored_stripped(name: str) -> None:
    notebook = read(name)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    ran = [cell.id for cell in code if cell.outputs or cell.execution_count is not None]
    advice = f"strip it: pip install nbstripout && nbstripout notebooks/{name}.ipynb"
    assert not ran, f"cells {', '.join(ran)} hold outputs or execution counts; {advice}"
    assert notebook.metadata == METADATA, advice
    assert not [cell.id for cell in notebook.cells if cell.metadata], advice
    assert len(notebook.cells) <= MOST_CELLS
    assert "simulated" in "".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


@pytest.mark.usefixtures("npu_host")
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name: str, tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_run(name, run(name, tmp_path, runtime, monkeypatch), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_where_torch_npu_cannot(
    name: str, tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a compiler and without stand-ins made before, torch_npu cannot be imported: the notebooks say so and go on."""
    for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "CC"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AUTOSTREAM_CACHE", str(runtime / "cache"))
    monkeypatch.setenv("PATH", str(runtime))
    outputs = run(name, tmp_path, runtime, monkeypatch)
    check_run(name, outputs, tmp_path)
    says = {"1_quick_start": "host", "2_by_hand_and_automatic": "layer", "4_check_by_hand": "words"}
    if name in says:
        assert "no C compiler found" in shown(outputs[says[name]])
