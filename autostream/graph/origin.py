"""Where an operator comes from: the module and the line of the user's program."""

from __future__ import annotations

import functools
import re
import sysconfig

from torch import fx

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_INDEX = re.compile(r"\[['\"]?([^\]'\"]+)['\"]?\]")
#: Frames of installed packages and of generated code are not the user's.
_FOREIGN = (sysconfig.get_paths()["purelib"], sysconfig.get_paths()["stdlib"], "<")


def module_path(node: fx.Node) -> str:
    """Return the dotted path of the innermost module a node was traced in, such as ``"layers.0.mlp"``."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    innermost = next(reversed(stack.values()))
    return _dotted(str(innermost[0] if isinstance(innermost, tuple) else innermost))


@functools.lru_cache(maxsize=64)  # neighbours come from one module, and from one line
def _dotted(path: str) -> str:
    path = _INDEX.sub(r".\1", path.replace("L['self']", ""))
    return path.removeprefix("L__self__").removeprefix("self").strip(".")


def source_line(node: fx.Node) -> str:
    """Return ``"file:line"`` of the last frame of the user's own code in a node's stack trace."""
    trace = node.meta.get("stack_trace")
    return _last_own_line(str(trace)) if trace else ""


@functools.lru_cache(maxsize=64)
def _last_own_line(trace: str) -> str:
    frames = _FRAME.findall(trace)
    own = [frame for frame in frames if not frame[0].startswith(_FOREIGN)]
    return ":".join((own or frames)[-1]) if frames else ""
