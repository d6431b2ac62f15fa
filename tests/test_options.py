"""Options: what is told of them comes from one place, and what a command line can say of them."""

from __future__ import annotations

import inspect

import pytest

import autostream
from autostream.cli import main
from autostream.cli.app import parse_options
from autostream.errors import InputError
from autostream.options import Options, described

_NONE = [option.name for option in described() if option.default == "None"]


def _plain(text: str) -> str:
    return " ".join(text.split())


def test_pythons_help_tells_meaning_default_and_range_of_every_option() -> None:
    text = _plain(str(inspect.getdoc(autostream.Options)))
    assert [option.name for option in described()] == list(Options.model_fields)
    for option in described():
        assert f"{option.name} = {option.default} {_plain(option.meaning)}. Allowed: {option.allowed}." in text


@pytest.mark.parametrize("command", ["schedule", "lower"])
def test_the_help_of_commands_with_options_does_so_too(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    text = _plain(capsys.readouterr().out)
    for option in described():
        assert f"{option.name}={option.default} {_plain(option.meaning)}. Allowed: {option.allowed}." in text


def test_allowed_values_are_those_that_are_enforced() -> None:
    allowed = {option.name: option.allowed for option in described()}
    assert allowed["strategy"] == "'auto', 'serial', 'greedy', 'cpsat'"
    assert allowed["side_streams"] == "a whole number at least 0 and at most 8"
    assert allowed["min_gain"] == "a number at least 0.0 and below 1.0"
    assert allowed["max_waits"] == "a whole number at least 0, or None"
    assert allowed["strict"] == "True or False"


@pytest.mark.parametrize("word", ["none", "None"])
def test_none_can_be_given_where_it_is_the_default(word: str) -> None:
    assert len(_NONE) == 4
    chosen = parse_options([f"{name}={word}" for name in _NONE])
    assert chosen == Options() and {getattr(chosen, name) for name in _NONE} == {None}


@pytest.mark.parametrize("name", ["side_streams", "rank_timeout", "strict", "strategy"])
def test_none_is_refused_elsewhere_and_the_error_says_what_is_allowed(name: str) -> None:
    told = next(option for option in described() if option.name == name)
    with pytest.raises(InputError) as raised:
        parse_options([f"{name}=none"])
    assert f"option {name!r} = 'none': " in str(raised.value)
    assert str(raised.value).endswith(f"(allowed: {told.allowed}; {told.meaning})")


def test_a_prefix_may_be_called_none() -> None:
    assert parse_options(["label_prefix=none"]).label_prefix == "none"
