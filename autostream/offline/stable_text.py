"""Text forms of protobuf messages that are the same in every process.

`str` of a message orders map entries as the protobuf implementation likes, which differs between implementations, and reading
a map gives them in an order that differs between processes.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format
from google.protobuf.message import Message


def stable_text(message: Message) -> str:
    """Return the message in protobuf text form, map entries sorted."""
    return str(text_format.MessageToString(message))


class _Stable:
    """A protobuf message whose `str` has its map entries sorted; TorchAir's dump writes messages through `str`."""

    def __init__(self, message: Message) -> None:
        self.message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self.message, name)

    def __str__(self) -> str:
        return stable_text(self.message)


class _StableOp(_Stable):
    @property
    def attr(self) -> dict[str, _Stable]:
        return {name: _Stable(self.message.attr[name]) for name in sorted(self.message.attr)}

    @property
    def input_desc(self) -> list[_Stable]:
        return [_Stable(desc) for desc in self.message.input_desc]

    @property
    def output_desc(self) -> list[_Stable]:
        return [_Stable(desc) for desc in self.message.output_desc]


class StableGraph(_Stable):
    """A GraphDef for TorchAir's dump, which asks for the ops, their attributes and their tensor descriptions."""

    @property
    def op(self) -> list[_StableOp]:
        """The operators, in the graph's order."""
        return [_StableOp(op) for op in self.message.op]
