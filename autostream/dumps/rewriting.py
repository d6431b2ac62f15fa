"""Write a plan into a dump: labels, control inputs and the order of the nodes, in the form the dump was in.

Texts are edited as texts, so that what this package does not read stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autostream.errors import RewriteError
from autostream.program.reading.ge_proto import message

_LABEL = "_user_stream_label"
#: A string, a comment, the start of a node, or a brace: what decides where a node begins and ends.
_TOKEN = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\#[^\n]*|\b(op|node)\s*:?\s*[{<]|[{}<>]""")
_NAME = re.compile(r"""\bname\s*:\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """One node of a text form: its name (before those of its tensors, as writers have it), its first word, where it stands."""

    name: str
    form: str
    start: int
    end: int


def rewritten(source: bytes, *, labels: Mapping[str, str], waits: Mapping[str, tuple[str, ...]], order: Sequence[str]) -> bytes:
    """Return a dump with the labels and control inputs of a plan, its nodes in the order of the plan.

    Args:
        source: a GraphDef, binary or as text, the same inside a ModelDef, or TorchAir's graph dump.
        labels: stream label by node.
        waits: nodes waited for by node.
        order: every node once.

    Raises:
        RewriteError: the text is not laid out as one node after the other.
    """
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError:
        return _binary(source, labels, waits, order)
    blocks = tuple(_blocks(text))
    if not blocks:  # a binary form may happen to be UTF-8
        return _binary(source, labels, waits, order)
    by_name = {block.name: block for block in blocks}
    if sorted(block.name for block in blocks) != sorted(order):
        raise RewriteError("the text of the dump is not laid out as one node after the other, each with its name first")
    pieces, at = [], 0
    for place, name in zip(blocks, order, strict=True):
        block = by_name[name]
        edited = _edited(text[block.start : block.end], block.form, labels.get(name), waits.get(name, ()))
        pieces += [text[at : place.start], edited]
        at = place.end
    return "".join([*pieces, text[at:]]).encode()


def _edited(block: str, form: str, label: str | None, waits: tuple[str, ...]) -> str:
    lines = [f'  input: "^{name}"' if form == "node" else f'  input: "{name}:-1"' for name in waits]
    if label is not None and form == "node":
        lines.append(f'  attr {{ key: "{_LABEL}" value {{ s: \'s: "{label}"\\n\' }} }}')
    elif label is not None:
        lines.append(f'  attr {{ key: "{_LABEL}" value {{ s: "{label}" }} }}')
    if not lines:
        return block
    return block[:-1].rstrip() + "\n" + "\n".join(lines) + "\n}"


def _blocks(text: str) -> Iterator[_Block]:
    """Yield the nodes of a text form, in the order in which they stand."""
    form, start, depth = "", 0, 0
    for token in _TOKEN.finditer(text):
        if token[1] and not depth:
            form, start, depth = token[1], token.start(), 1
        elif depth and token[0][-1] in "{<" and token[0][0] not in "\"'#":
            depth += 1
        elif depth and token[0] in "}>":
            depth -= 1
            if not depth:
                name = _NAME.search(text, start, token.end())
                yield _Block(name=name[1][1:-1] if name else "", form=form, start=start, end=token.end())


def _binary(source: bytes, labels: Mapping[str, str], waits: Mapping[str, tuple[str, ...]], order: Sequence[str]) -> bytes:
    whole: Any = message("GraphDef").FromString(source)
    graph = whole
    if not graph.op:
        whole = message("ModelDef").FromString(source)
        graph = whole.graph[0]
    ops = {op.name: op for op in graph.op}
    for name, label in labels.items():
        ops[name].attr[_LABEL].s = label.encode()
    for name, befores in waits.items():
        ops[name].input.extend(f"{before}:-1" for before in befores)
    kept = [message("OpDef").FromString(ops[name].SerializeToString()) for name in order]
    del graph.op[:]
    graph.op.extend(kept)
    return bytes(whole.SerializeToString(deterministic=True))
