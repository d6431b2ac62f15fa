from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

from autostream.cli.targets import load
from autostream.errors import InputError

torch = pytest.importorskip("torch")

_names = (f"factories_{number}" for number in itertools.count())

FACTORIES = """
import sys
import torch

class Factory:
    @staticmethod
    def small():
        return torch.nn.Linear(2, 2), [torch.ones(1, 2)]

def tiny_model():
    return torch.nn.Linear(2, 2), (torch.ones(1, 2),)

def fails():
    raise ValueError("no weights\\nat all")

def exits():
    sys.exit("usage: train.py")

def needs(x):
    return x

def nothing():
    pass

def only_model():
    return torch.nn.Linear(2, 2)

def wrong_model():
    return "model", ()

def wrong_inputs():
    return torch.nn.Linear(2, 2), torch.ones(1, 2)

def wrong_kwargs():
    return torch.nn.Linear(2, 2), (), [1]

def keyword_inputs():
    return torch.nn.Linear(2, 2), {"input": torch.ones(1, 2)}

def mixed_inputs():
    return torch.nn.Bilinear(2, 2, 2), (torch.ones(1, 2),), {"input2": torch.ones(1, 2)}

def graph():
    return torch.fx.symbolic_trace(torch.nn.Linear(2, 2))

def exported():
    return torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))

number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module of factories in the current folder; a new name each time, since Python remembers modules."""
    name = next(_names)
    (tmp_path / f"{name}.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_a_factory_of_the_current_folder(module: str) -> None:
    loaded = load(f"{module}:tiny_model")
    assert isinstance(loaded.program, torch.nn.Linear)
    assert isinstance(loaded.example_inputs, tuple) and loaded.example_inputs[0].shape == (1, 2)


def test_a_dotted_attribute_and_a_list_of_inputs(module: str) -> None:
    loaded = load(f"{module}:Factory.small")
    assert isinstance(loaded.example_inputs, tuple)


def test_keyword_inputs_and_programs_that_know_their_inputs(module: str) -> None:
    loaded = load(f"{module}:keyword_inputs")
    assert (loaded.example_inputs, list(loaded.example_kwargs)) == ((), ["input"])
    loaded = load(f"{module}:mixed_inputs")
    assert (len(loaded.example_inputs or ()), list(loaded.example_kwargs)) == (1, ["input2"])
    for name, kind in (("graph", torch.fx.GraphModule), ("exported", torch.export.ExportedProgram)):
        loaded = load(f"{module}:{name}")
        assert isinstance(loaded.program, kind) and loaded.example_inputs is None


ONE = """
import dataclasses
import helper_of_one
from os.path import join

@dataclasses.dataclass
class Sizes:
    width: int = helper_of_one.WIDTH

def _hidden():
    pass

def helper(model):
    return model

def model(width=None):
    import torch
    return torch.nn.Linear(Sizes().width, 2), (torch.ones(1, Sizes().width),)
"""


def test_a_file_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "one.py").write_text(ONE)
    (tmp_path / "helper_of_one.py").write_text("WIDTH = 3")
    for target in (f"{tmp_path}/one.py", f"{tmp_path}/one.py:model"):
        assert load(target).program.in_features == 3


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "it has no public function without required arguments"),
        ("def f(x): pass\ndef g(y): pass", "those it has need arguments: f, g"),
        ("def f(): pass\ndef g(): pass", r"2 functions that could be the factory: f, g; name one: .*m.py:f"),
        ("def f(: pass", r"running .*m.py' failed: SyntaxError"),
        ("1 / 0", r"running .*m.py' failed: ZeroDivisionError: division by zero \(.*m.py:1\)"),
        ("raise SystemExit(2)", "running .*m.py' failed: SystemExit: 2"),
        ("import no_such_dependency", "No module named 'no_such_dependency'"),
        ("def f(): pass", r"the factory returned nothing \(None\)"),
    ],
)
def test_files_without_one_obvious_factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "m.py").write_text(source)
    with pytest.raises(InputError, match=message):
        load(f"{tmp_path}/m.py")


def test_files_are_passed_on_by_path(tmp_path: Path) -> None:
    for name in ("a.pt2", "b.pbtxt", "c.pb", "d.txt"):
        (tmp_path / name).write_text("")
        assert load(str(tmp_path / name), dumps=True).program == str(tmp_path / name)


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("tiny_modle", r"has no 'tiny_modle' \(did you mean 'tiny_model'\?\)"),
        ("qqqqqqqq", "has no 'qqqqqqqq'; it has: Factory, exits, exported, fails, graph"),
        ("Factory.smal", "'Factory' has no 'smal'.*did you mean 'small'"),
        ("number", "'number' is int, not a function that returns"),
        ("fails", r"the factory failed: ValueError: no weights"),
        ("exits", r"the factory failed: SystemExit: usage: train.py"),
        ("needs", r"the factory failed: TypeError: needs\(\) missing 1 required positional argument: 'x'"),
        ("nothing", r"the factory returned nothing \(None\); it must return \(model, example inputs\)"),
        ("only_model", "the factory returned a Linear; it must return"),
        ("wrong_kwargs", "the factory returned a list of 1 as the keyword inputs; it must return"),
        ("wrong_model", "the factory returned a str as the model; it must return"),
        ("wrong_inputs", "the factory returned a Tensor as the example inputs; it must return"),
    ],
)
def test_bad_factories(module: str, attribute: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(f"{module}:{attribute}")
    assert f"'{module}:{attribute}'" in str(caught.value)


def test_where_a_factory_failed(module: str) -> None:
    with pytest.raises(InputError, match=rf"{module}.py:14\)"):
        load(f"{module}:fails")


def test_module_not_found_names_the_nearest(module: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"no module '{module}x'.*did you mean '{module}'"):
        load(f"{module}x:tiny_model")
    with pytest.raises(InputError, match="no module 'no_such_package'"):
        load("no_such_package.models:f")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_dependency", "importing '{name}' failed: ModuleNotFoundError: No module named 'no_such_dependency'"),
        ("def broken(:", r"importing '{name}' failed: SyntaxError: .*{name}.py:1\)"),
        ("1 / 0", r"importing '{name}' failed: ZeroDivisionError: division by zero \(.*{name}.py:1\)"),
        ("raise SystemExit(2)", "importing '{name}' failed: SystemExit: 2"),
    ],
)
def test_a_module_that_does_not_import(module: str, tmp_path: Path, source: str, message: str) -> None:
    name = next(_names)
    (tmp_path / f"{name}.py").write_text(source)
    with pytest.raises(InputError, match=message.format(name=name)):
        load(f"{name}:f")


@pytest.mark.parametrize(
    ("target", "dumps", "message"),
    [
        ("modle.pt2", False, r"no such file \(did you mean 'model.pt2'\?\)"),
        ("nowhere/model.pt2", False, "there is no folder 'nowhere'"),
        ("folder.pt2", False, "a folder, not a file"),
        ("dump.pbtxt", False, "an Ascend IR dump can only be checked"),
        ("dmp.pbtxt", True, r"did you mean 'dump.pbtxt'"),
        ("model.onnx", False, r"not a target; allowed: a .pt2 file, module:factory, file.py:factory or file.py"),
        ("model.onnx", True, r"allowed: a .pt2 file, an Ascend IR dump"),
        ("", False, "not a target"),
        (":f", False, "not a target"),
        ("m:", False, "not a target"),
        ("models/m.py:f", False, "no such file: there is no folder 'models'"),
        ("modles.py:f", False, r"no such file \(did you mean 'models.py'\?\)"),
        ("modles.py", True, r"no such file \(did you mean 'models.py'\?\)"),
        ("folder.py", True, "a folder, not a file"),
        ("models.py:", False, "not a target"),
    ],
)
def test_what_is_no_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, dumps: bool, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pt2").write_text("")
    (tmp_path / "dump.pbtxt").write_text("")
    (tmp_path / "folder.pt2").mkdir()
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "models.py").write_text("")
    with pytest.raises(InputError, match=message) as caught:
        load(target, dumps=dumps)
    assert repr(target) in str(caught.value)
