"""Turn a TARGET of the command line into a program: a file, or a factory in an importable module."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autostream import offline
from autostream.errors import InputError, nearest

EXPORTED = (".pt2",)
ASCEND_IR = (".pbtxt", ".pb", ".txt")
_WHAT = "a .pt2 file or module:factory"
_WHAT_CHECK = "a .pt2 file, an Ascend IR dump (.pbtxt, .pb, .txt) or module:factory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A program and, where it needs them, its example inputs."""

    program: Any
    example_inputs: tuple[Any, ...] | None


def load(target: str, *, dumps: bool = False) -> Loaded:
    """Return what a target names; `dumps` allows Ascend IR dumps.

    Raises:
        InputError: names the target, what is wrong with it and what is allowed.
    """
    suffix = Path(target).suffix.lower()
    if suffix in EXPORTED or (dumps and suffix in ASCEND_IR):
        return Loaded(program=_file(target), example_inputs=None)
    if suffix in ASCEND_IR:
        raise InputError(f"target {target!r}: an Ascend IR dump can only be checked ('autostream check'); allowed here: {_WHAT}")
    module, colon, attribute = target.partition(":")
    if not colon or not module or not attribute:
        raise InputError(f"target {target!r}: not a target; allowed: {_WHAT_CHECK if dumps else _WHAT}")
    if module.endswith(".py"):
        path = Path(module)
        place = f" in {path.parent}" if path.parent != Path() else ""
        raise InputError(f"target {target!r}: name the module, not its file: run '{path.stem}:{attribute}'{place}")
    return _call(target, _attribute(target, _module(target, module), attribute))


def _file(target: str) -> str:
    path = Path(target)
    if path.is_file():
        return target
    if path.is_dir():
        raise InputError(f"target {target!r}: a folder, not a file")
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"target {target!r}: no such file: there is no folder {str(folder)!r}")
    hint = nearest(path.name, sorted(entry.name for entry in folder.iterdir() if entry.is_file()))
    raise InputError(f"target {target!r}: no such file{hint}")


def _module(target: str, name: str) -> Any:
    """Import a module with the current folder importable."""
    if offline.why_unavailable() is None:
        offline.activate()  # the user's module may import torch_npu or torchair
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            hint = nearest(name, sorted(path.stem for path in Path(here).glob("*.py")))
            raise InputError(f"target {target!r}: no module {error.name!r} in {here} or in the environment{hint}") from error
        raise InputError(f"target {target!r}: importing {name!r} failed: {_last_line(error)}") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"target {target!r}: importing {name!r} failed: {_last_line(error)}") from error


def _attribute(target: str, module: Any, path: str) -> Any:
    value = module
    for part in path.split("."):
        if not hasattr(value, part):
            owner = getattr(value, "__name__", type(value).__name__)
            callables = [name for name in dir(value) if not name.startswith("_") and callable(getattr(value, name, None))]
            raise InputError(f"target {target!r}: {owner!r} has no {part!r}{nearest(part, callables) or _listed(callables)}")
        value = getattr(value, part)
    if not callable(value):
        raise InputError(
            f"target {target!r}: {path!r} is {type(value).__name__}, not a function that returns (model, example inputs)"
        )
    return value


def _call(target: str, factory: Any) -> Loaded:
    try:
        made = factory()
    except (Exception, SystemExit) as error:
        raise InputError(f"target {target!r}: the factory failed: {_last_line(error)}") from error
    wanted = "it must return (model, example inputs): a torch.nn.Module or ExportedProgram and a tuple"
    if not isinstance(made, (tuple, list)) or len(made) != 2:
        raise InputError(f"target {target!r}: the factory returned {_shape(made)}; {wanted}")
    model, inputs = made
    if not _is_program(model):
        raise InputError(f"target {target!r}: the factory returned {_shape(model)} as the model; {wanted}")
    if not isinstance(inputs, (tuple, list)):
        raise InputError(f"target {target!r}: the factory returned {_shape(inputs)} as the example inputs; {wanted}")
    return Loaded(program=model, example_inputs=tuple(inputs))


def _is_program(value: Any) -> bool:
    import torch

    return isinstance(value, (torch.nn.Module, torch.export.ExportedProgram))


def _shape(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return "nothing (None)" if value is None else f"a {type(value).__name__}"


def _last_line(error: BaseException) -> str:
    """Return the last line of a traceback, and where it was raised."""
    text = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, SyntaxError):
        return f"{text} ({error.filename}:{error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})"


def _listed(names: Iterable[str]) -> str:
    names = list(names)[:10]
    return f"; it has: {', '.join(names)}" if names else ""
