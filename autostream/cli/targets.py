"""Turn a TARGET of the command line into a program: a file, or a factory in a module or in a Python file."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from autostream import offline
from autostream.errors import InputError, nearest

EXPORTED = (".pt2",)
#: Of the names of modules made of Python files.
_PREFIX = "autostream_target_"
ASCEND_IR = (".pbtxt", ".pb", ".txt")
_FACTORY = "module:factory, file.py:factory or file.py"
_WHAT = f"a .pt2 file, {_FACTORY}"
_WHAT_CHECK = f"a .pt2 file, an Ascend IR dump (.pbtxt, .pb, .txt), {_FACTORY}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A program and, where it needs them, its example inputs."""

    program: Any
    example_inputs: tuple[Any, ...] | None
    #: Keyword inputs of a module.
    example_kwargs: dict[str, Any] = field(default_factory=dict)


def load(target: str, *, dumps: bool = False) -> Loaded:
    """Return what a target names; `dumps` allows Ascend IR dumps.

    Raises:
        InputError: names the target, what is wrong with it and what is allowed.
    """
    suffix = Path(target).suffix.lower()
    if suffix in EXPORTED or (dumps and suffix in ASCEND_IR):
        return Loaded(program=_file(target), example_inputs=None)
    if suffix in ASCEND_IR:
        others = "checked ('autostream check') or planned from ('autostream schedule --ge-graph')"
        raise InputError(f"target {target!r}: an Ascend IR dump can only be {others}; allowed here: {_WHAT}")
    place, colon, attribute = target.rpartition(":") if ":" in target else (target, "", "")
    if place.endswith(".py") and (attribute or not colon):
        module = _python_file(target, place)
        return _call(target, _attribute(target, module, attribute) if colon else _only_factory(target, module))
    if not colon or not place or not attribute:
        raise InputError(f"target {target!r}: not a target; allowed: {_WHAT_CHECK if dumps else _WHAT}")
    return _call(target, _attribute(target, _module(target, place), attribute))


def _file(target: str, name: str | None = None) -> str:
    """Return the file's path if it is there; `name` is the part of the target that names it, if that is not all of it."""
    path = Path(target if name is None else name)
    if path.is_file():
        return str(path)
    if path.is_dir():
        raise InputError(f"target {target!r}: a folder, not a file")
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"target {target!r}: no such file: there is no folder {str(folder)!r}")
    hint = nearest(path.name, sorted(entry.name for entry in folder.iterdir() if entry.is_file()))
    raise InputError(f"target {target!r}: no such file{hint}")


def _module(target: str, name: str) -> Any:
    """Import a module with the current folder importable."""
    _bring_up()
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


def _python_file(target: str, name: str) -> ModuleType:
    """Run a Python file as a module of its own, with its folder and the current one importable."""
    path = Path(_file(target, name)).resolve()
    _bring_up()
    for folder in (os.getcwd(), str(path.parent)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(f"{_PREFIX}{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"target {target!r}: {name!r} cannot be run as a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look a class's module up by name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        raise InputError(f"target {target!r}: running {name!r} failed: {_last_line(error)}") from error
    return module


def _bring_up() -> None:
    if offline.why_unavailable() is None:
        offline.activate()  # the user's module may import torch_npu or torchair


def _only_factory(target: str, module: ModuleType) -> Any:
    """Return the one public function of the file that can be called without arguments."""
    functions = {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }
    callable_so = {name: value for name, value in functions.items() if not _required(value)}
    if len(callable_so) == 1:
        return next(iter(callable_so.values()))
    if callable_so:
        found = f"it has {len(callable_so)} functions that could be the factory: {', '.join(callable_so)}"
        raise InputError(f"target {target!r}: {found}; name one: {target}:{next(iter(callable_so))}")
    others = f"; those it has need arguments: {', '.join(functions)}" if functions else ""
    raise InputError(
        f"target {target!r}: it has no public function without required arguments that could return "
        f"(model, example inputs){others}"
    )


def _required(function: Any) -> list[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in kinds]


def _attribute(target: str, module: Any, path: str) -> Any:
    value = module
    for part in path.split("."):
        if not hasattr(value, part):
            owner = getattr(value, "__name__", type(value).__name__).removeprefix(_PREFIX)
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
    wanted = (
        "it must return (model, example inputs): a torch.nn.Module and a tuple of inputs or a dict of keyword inputs, "
        "(model, inputs, keyword inputs), or an ExportedProgram or a torch.fx.GraphModule alone"
    )
    if _stands_alone(made):
        return Loaded(program=made, example_inputs=None)
    if not isinstance(made, (tuple, list)) or len(made) not in (2, 3):
        raise InputError(f"target {target!r}: the factory returned {_shape(made)}; {wanted}")
    model, inputs, *rest = made
    if not _is_program(model):
        raise InputError(f"target {target!r}: the factory returned {_shape(model)} as the model; {wanted}")
    if isinstance(inputs, dict) and not rest:
        inputs, rest = (), [inputs]
    if not isinstance(inputs, (tuple, list)):
        raise InputError(f"target {target!r}: the factory returned {_shape(inputs)} as the example inputs; {wanted}")
    kwargs = rest[0] if rest else {}
    if not isinstance(kwargs, dict) or not all(isinstance(name, str) for name in kwargs):
        raise InputError(f"target {target!r}: the factory returned {_shape(kwargs)} as the keyword inputs; {wanted}")
    return Loaded(program=model, example_inputs=tuple(inputs), example_kwargs=dict(kwargs))


def _stands_alone(value: Any) -> bool:
    """True for a program that knows its inputs."""
    import torch

    return isinstance(value, (torch.export.ExportedProgram, torch.fx.GraphModule))


def _is_program(value: Any) -> bool:
    import torch

    return isinstance(value, (torch.nn.Module, torch.export.ExportedProgram))


def _shape(value: Any) -> str:
    name = type(value).__name__
    if isinstance(value, (tuple, list)):
        return f"a {name} of {len(value)}"
    return "nothing (None)" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _last_line(error: BaseException) -> str:
    """Return the last line of a traceback, and where it was raised."""
    text = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, SyntaxError):
        if error.filename is None:
            return text
        return f"{text} ({error.filename}:{error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})"


def _listed(names: Iterable[str]) -> str:
    names = list(names)[:10]
    return f"; it has: {', '.join(names)}" if names else ""
