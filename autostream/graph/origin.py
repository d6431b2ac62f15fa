"""Where an operator comes from: the module and the line of the user's program."""

from __future__ import annotations

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
    innermost = list(stack.values())[-1]
    path = str(innermost[0] if isinstance(innermost, tuple) else innermost)
    path = _INDEX.sub(r".\1", path.replace("L['self']", ""))
    return path.removeprefix("L__self__").removeprefix("self").strip(".")


def source_line(node: fx.Node) -> str:
    """Return ``"file:line"`` of the last frame of the user's own code in a node's stack trace."""
    frames = _FRAME.findall(str(node.meta.get("stack_trace") or ""))
    own = [frame for frame in frames if not frame[0].startswith(_FOREIGN)]
    return ":".join((own or frames)[-1]) if frames else ""
