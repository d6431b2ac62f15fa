"""What is installed: every package, every data file, every entry point, from a wheel and from a source distribution."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def data_files() -> set[str]:
    """Return the paths, below the package, of all files that are not Python."""
    package = ROOT / "autostream"
    folders = [package, *(path for path in package.rglob("*") if path.is_dir())]
    files = {path for folder in folders for path in folder.iterdir() if path.is_file() and path.suffix not in {".py", ".pyc"}}
    return {path.relative_to(package).as_posix() for path in files}


def test_cost_models_are_reached_by_a_relative_link() -> None:
    link = ROOT / "autostream" / "cost_models"
    if link.is_symlink():  # a source distribution holds the files themselves
        assert link.readlink() == Path("../cost_models")
    files = {path.name for path in link.glob("*.yaml")}
    assert files == {path.name for path in (ROOT / "cost_models").glob("*.yaml")}
    assert files


def test_every_folder_with_code_is_a_package() -> None:
    folders = {path.parent for path in (ROOT / "autostream").rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


@pytest.mark.parametrize(
    "target",
    [
        *PROJECT["project"]["scripts"].values(),
        *(value for group in PROJECT["project"]["entry-points"].values() for value in group.values()),
    ],
)
def test_entry_point_is_there(target: str) -> None:
    module, name = target.split(":")
    assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.slow
def test_wheel_and_source_distribution_hold_every_data_file(tmp_path: Path) -> None:
    pytest.importorskip("build")
    source = tmp_path / "source"  # building leaves files in the source folder
    shutil.copytree(ROOT, source, symlinks=True, ignore=shutil.ignore_patterns(".*", "*.egg-info", "build", "dist"))
    subprocess.run([sys.executable, "-m", "build", "--outdir", tmp_path, source], check=True)
    expected = {f"autostream/{name}" for name in data_files()}
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:  # made from the source distribution
        assert expected <= set(wheel.namelist())
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert expected | {"LICENSE", "CHANGELOG.md", "setup.cfg", "tests/conftest.py"} <= names


def test_the_readme_tells_of_every_option_what_the_help_tells() -> None:
    from autostream.options import described

    readme = (Path(__file__).parents[1] / "README.md").read_text()
    rows = dict(re.findall(r"^\| (`\w+`) \| (.*) \|$", readme, re.MULTILINE))
    for option in described():
        default = option.default if not option.default.startswith("'") else f'`"{option.default[1:-1]}"`'
        assert rows[f"`{option.name}`"] == f"{default} | {option.meaning}"
