"""Write a report and the graphs it is about into a folder."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from autostream.errors import InputError
from autostream.report.html import HTML, page
from autostream.report.schema import Document
from autostream.report.table import CSV, table
from autostream.report.trace import TRACE, trace

REPORT = "report.json"
GRAPH_BEFORE = "graph_before.txt"
GRAPH_AFTER = "graph_after.txt"
ASCEND_IR = "ascend_ir.pbtxt"


def save(
    document: Document, folder: str | os.PathLike[str], *, graph_before: str, graph_after: str, ascend_ir: str | None = None
) -> tuple[Path, ...]:
    """Write the report in every form, the FX code before and after and (where given) the Ascend IR; return the paths.

    The folder is made if it is not there; each file appears complete or not at all. The Ascend IR of an earlier run, which the
    report that is replaced belonged to, goes with it where there is none now.

    Raises:
        InputError: the folder or a file in it cannot be written.
    """
    texts = {GRAPH_BEFORE: graph_before, GRAPH_AFTER: graph_after}
    if ascend_ir is not None:
        texts[ASCEND_IR] = ascend_ir
    elif (Path(folder) / REPORT).is_file():
        _remove(Path(folder) / ASCEND_IR)
    return (*save_forms(document, folder), *(write(Path(folder) / name, text) for name, text in texts.items()))


def save_forms(document: Document, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write the report alone, in every form; return the paths.

    Raises:
        InputError: the folder or a file in it cannot be written.
    """
    texts = {REPORT: document.to_json(), HTML: page(document), CSV: table(document), TRACE: trace(document)}
    return tuple(write(Path(folder) / name, text) for name, text in texts.items())


def check_folder(folder: Path) -> None:
    """Check that files can be written into a folder, which may not be there yet, before the work that fills them.

    Raises:
        InputError: they cannot be; names the folder and the reason.
    """
    present = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not present.is_dir():
        raise InputError(f"cannot write into {folder}: a file stands where the folder {present} should be")
    if not os.access(present, os.W_OK | os.X_OK):
        raise InputError(f"cannot write into {folder}: no permission to write in {present}")


def check_file(path: Path) -> None:
    """Check that a file can be written, before the work that fills it.

    Raises:
        InputError: it cannot be; names the file and the reason.
    """
    if path.is_dir():
        raise InputError(f"cannot write {path}: {path} is a folder")
    check_folder(path.parent)


def write(path: Path, text: str) -> Path:
    """Write a text file that appears complete or not at all, with the folder it lies in; return its path.

    Raises:
        InputError: the file cannot be written; names it and the reason.
    """
    return write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> Path:
    """Write a file that appears complete or not at all, with the folder it lies in; return its path.

    Raises:
        InputError: the file cannot be written; names it and the reason.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder")
        _replace(path, data)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"cannot write {path}: a file stands where its folder {path.parent} should be") from error
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot remove {path}: {error.strerror or error}") from error


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
