"""Load the operators of an Ascend IR graph from any of the forms it is kept in.

- bytes: a serialised GraphDef;
- text: a GraphDef in protobuf text form, ``name: ... op { name: type: input: attr { } ... }``;
- either of them inside a ModelDef, ``name: ... graph { ... }``, as GE itself writes graphs;
- pbtxt: TorchAir's graph dump, ``node { name: op: input: attr { } }``, with control inputs spelled ``^name``, every attribute
  value the text form of a protobuf value, and ports as attributes ``[i]name`` and ``[o]name``.
"""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from autostream.errors import InputError
from autostream.program.reading.ge_proto import DATA_TYPES, message
from autostream.program.reading.limits import CORE_LIMITS, core_limit

logger = logging.getLogger(__name__)

_NAME = operator.attrgetter("name")
_LABEL = "_user_stream_label"
_FX_NAME = "_fx_tensor_name"
_GROUPS = ("group", "group_ep", "group_name")
_RANKS = ("ep_world_size", "rank_size")
_EXPECTED = "expected an Ascend IR graph: a serialised GraphDef, its text form ('op {') or a TorchAir graph dump ('node {')"
#: A data type of a later GE than this; and what TorchAir notes of the tensor that torch saw.
_NEW_TYPE = re.compile(rf"\bdtype:\s*DT_(?!(?:{'|'.join(DATA_TYPES)})\b)\w+")
_META = re.compile(r"shape=torch\.Size\(\[([^\]]*)\]\)")
#: A text form starts, after comments, with a field of its top-level message.
_TEXT = re.compile(r"(?:\s+|#[^\n]*\n)*(node|name|op|attr|input|output|version|custom_version|graph|ir_version)\s*[:{<]")


class GeInput(NamedTuple):
    """One input of an operator: output number `output` of the operator `producer`."""

    producer: str
    output: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GeTensor:
    """What a graph tells of one output of an operator."""

    #: None where it does not tell all sizes.
    shape: tuple[int, ...] | None
    #: As GE spells it, ``"DT_BF16"``.
    dtype: str
    #: True if a size depends on the inputs of a run.
    dynamic: bool = False


class GeOp(NamedTuple):
    """One operator of an Ascend IR graph, free of protobuf. A graph has thousands of them: hence no dataclass.

    `inputs` has one entry per input port (None where an optional one is not fed), `controls` the operators waited for.
    """

    name: str
    type: str
    label: str | None
    inputs: tuple[GeInput | None, ...]
    controls: tuple[str, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    #: FX value each output is, as ``"node.position"``; empty where it is none.
    fx_values: tuple[str, ...] = ()
    #: Sizes of each output; None where the graph does not tell all of them.
    shapes: tuple[tuple[int, ...] | None, ...] = ()
    #: Process group of a collective, empty if there is none.
    group: str = ""
    #: Ranks that take part in a collective; None where the graph does not tell.
    group_size: int | None = None
    #: Each output as fully as the graph tells it: what torch saw counts too where GE was not asked yet.
    tensors: tuple[GeTensor, ...] = ()
    #: Cube and vector cores it is limited to, or None.
    cores: tuple[int, int] | None = None

    @property
    def fx_node(self) -> str:
        """FX node whose value the operator produces, empty if it produces none."""
        for value in self.fx_values:
            if value:
                return value.split(".", 1)[0]
        return ""


def load_ops(source: bytes | str | Path, *, described: bool = True) -> tuple[GeOp, ...]:
    """Return the operators of a graph in listing order.

    Args:
        source: the graph itself as bytes or text, or the path of a file that holds either. A str without a line break or a
            brace is a path.
        described: False if nobody asks for shapes, data types and process groups: those of a GraphDef are left out then, as
            reading them takes as long as all the rest.

    Raises:
        InputError: the file cannot be read, or it holds no Ascend IR; names the source and the parser's complaint.
    """
    where, data = _read(source)
    text = _as_text(data)
    if text is not None and text[1] == "ir_version":
        raise InputError(
            f"{where} is not an Ascend IR graph but GE's ONNX-like dump (ge_onnx_*.pbtxt), which leaves out names of outputs: "
            "what is written in place cannot be told; give the ge_proto_*.txt that GE writes beside it, or TorchAir's own dump"
        )
    if text is None:
        binary = data if isinstance(data, bytes) else data.encode()
        return _ops(_graph(lambda kind: _parse_binary(binary, kind, where), where), where, described)
    if text[1] == "node":
        return _dump_ops(_parse_text(text[0], "DumpGraph", where), where)
    return _ops(_graph(lambda kind: _parse_text(text[0], kind, where), where), where, described)


def _read(source: bytes | str | Path) -> tuple[str, bytes | str]:
    if isinstance(source, bytes):
        return "the given bytes", source
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return "the given text", source
    if not isinstance(source, (str, Path)):
        raise InputError(f"an Ascend IR graph must be bytes, text or a path, not {type(source).__name__}")
    try:
        return f"{str(source)!r}", Path(source).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {str(source)!r}: {error.strerror or error}") from error


def _as_text(data: bytes | str) -> tuple[str, str] | None:
    """Return the text and its first field if `data` is one of the text forms, else None."""
    if isinstance(data, bytes):
        try:
            data = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None
    match = _TEXT.match(data)
    return (data, match[1]) if match else None


def _graph(parse: Callable[[str], Any], where: str) -> Any:
    """Return the GraphDef: the source itself, or the one graph of a model."""
    graph = parse("GraphDef")
    graphs = () if graph.op else parse("ModelDef").graph
    if len(graphs) > 1:
        raise InputError(f"{where} is a model of {len(graphs)} graphs; only a graph without subgraphs can be read")
    return graphs[0] if graphs else graph


def _parse_binary(data: bytes, kind: str, where: str) -> Any:
    try:
        return message(kind).FromString(data)
    except DecodeError as error:
        raise InputError(f"{where} is not an Ascend IR graph ({error}); {_EXPECTED}") from error


def _parse_text(text: str, kind: str, where: str) -> Any:
    try:
        return _from_text(text, kind)
    except text_format.ParseError as error:
        raise InputError(f"{where} is not an Ascend IR graph: the parser stopped at {error}; {_EXPECTED}") from error


def _from_text(text: str, kind: str) -> Message:
    text = _NEW_TYPE.sub("dtype: DT_UNDEFINED", text)  # the parser skips fields it does not know, but no names of an enumeration
    parsed: Message = text_format.Parse(text, message(kind)(), allow_unknown_field=True)
    return parsed


def _ops(graph: Any, where: str, described: bool) -> tuple[GeOp, ...]:
    known: dict[str, GeInput] = {}
    return _checked([_op(op, described, known) for op in graph.op], where)


def _op(op: Any, described: bool, known: dict[str, GeInput]) -> GeOp:
    attrs = op.attr
    data, controls = _split_inputs(op.input, known)
    names, values = [], []
    for desc in op.output_desc:
        names.append(desc.name)
        values.append(_fx_value(desc))
    cube, vector = CORE_LIMITS
    limited = cube in attrs or vector in attrs
    return GeOp(
        name=op.name,
        type=op.type,
        label=_label(attrs[_LABEL]) if _LABEL in attrs else None,
        inputs=data,
        controls=controls,
        input_names=_ports(attrs, "input", tuple(map(_NAME, op.input_desc))),
        output_names=_ports(attrs, "output", tuple(names)),
        fx_values=tuple(values),
        cores=core_limit({key: attrs[key].s.decode(errors="replace") for key in CORE_LIMITS if key in attrs})
        if limited
        else None,
        **(_description(attrs, op.output_desc) if described else {}),
    )


def _description(attrs: Any, outputs: Sequence[Any]) -> dict[str, Any]:
    """Return the fields that only those ask for who price an operator."""
    return {
        "shapes": tuple(_shape(desc) for desc in outputs),
        "tensors": tuple(_tensor(desc) for desc in outputs),
        "group_size": _ranks(attrs[key].i for key in _RANKS if key in attrs),
        "group": next((attrs[key].s.decode(errors="replace") for key in _GROUPS if key in attrs), ""),
    }


def _ports(attrs: Any, side: str, given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the port names; a graph that GE has written keeps them only in a pair of attributes (name and index)."""
    if not given or any(given) or f"_{side}_name_key" not in attrs:
        return given
    names = [""] * len(given)
    for name, index in zip(attrs[f"_{side}_name_key"].list.s, attrs[f"_{side}_name_value"].list.i, strict=False):
        if 0 <= index < len(names):
            names[index] = name.decode(errors="replace")
    return tuple(names)


def _dump_ops(graph: Any, where: str) -> tuple[GeOp, ...]:
    return _checked([_dump_op(node, where) for node in graph.node], where)


def _dump_op(node: Any, where: str) -> GeOp:
    def value(attr: Any, kind: str) -> Any:
        try:
            return _from_text(attr.value.s.decode(errors="replace"), kind)
        except text_format.ParseError as error:
            raise InputError(
                f"{where}: attribute {attr.key!r} of node {node.name!r} is not the text of a protobuf value: "
                f"the parser stopped at {error}; {_EXPECTED}"
            ) from error

    inputs = [f"{entry[1:]}:-1" if entry.startswith("^") else entry for entry in node.input]
    data, controls = _split_inputs(inputs, {})
    attrs = {attr.key: attr for attr in node.attr}
    outputs = [value(attr, "TensorDescriptor") for attr in node.attr if attr.key.startswith("[o]")]
    groups = (value(attrs[key], "AttrDef").s.decode(errors="replace") for key in _GROUPS if key in attrs)
    limits = {key: value(attrs[key], "AttrDef").s.decode(errors="replace") for key in CORE_LIMITS if key in attrs}
    return GeOp(
        name=node.name,
        type=node.op,
        label=_label(value(attrs[_LABEL], "AttrDef")) if _LABEL in attrs else None,
        inputs=data,
        controls=controls,
        input_names=tuple(attr.key[3:] for attr in node.attr if attr.key.startswith("[i]")),
        output_names=tuple(attr.key[3:] for attr in node.attr if attr.key.startswith("[o]")),
        fx_values=tuple(_fx_value(desc) for desc in outputs),
        shapes=tuple(_shape(desc) for desc in outputs),
        tensors=tuple(_tensor(desc) for desc in outputs),
        group_size=_ranks(value(attrs[key], "AttrDef").i for key in _RANKS if key in attrs),
        group=next(groups, ""),
        cores=core_limit(limits),
    )


def _label(attr: Any) -> str | None:
    return attr.s.decode(errors="replace") or None


def _ranks(sizes: Iterable[int]) -> int | None:
    return next((int(size) for size in sizes if size > 0), None)


def _shape(desc: Any) -> tuple[int, ...] | None:
    """Return the sizes of an output; a negative one is not known. No size at all is a scalar, or nothing said: a scalar then."""
    sizes = tuple(int(size) for size in desc.shape.dim)
    return None if any(size < 0 for size in sizes) else sizes


def _tensor(desc: Any) -> GeTensor:
    number = int(desc.dtype)
    dtype = f"DT_{DATA_TYPES[number]}" if 0 <= number < len(DATA_TYPES) else "DT_UNDEFINED"
    sizes: tuple[int, ...] | None = tuple(int(size) for size in desc.shape.dim)
    if not sizes and "_meta" in desc.attr:
        seen = _META.search(desc.attr["_meta"].s.decode(errors="replace"))
        words = [word.strip() for word in seen[1].split(",")] if seen and seen[1].strip() else []
        if not all(word.isdecimal() for word in words):  # a symbol
            return GeTensor(shape=None, dtype=dtype, dynamic=True)
        sizes = tuple(map(int, words)) if seen else None
    elif not sizes and not desc.HasField("shape"):
        sizes = None
    dynamic = sizes is not None and any(size < 0 for size in sizes)
    return GeTensor(shape=None if dynamic else sizes, dtype=dtype, dynamic=dynamic)


def _fx_value(desc: Any) -> str:
    """Return ``add_1.0`` for an output that TorchAir has named ``add_1-aten.add.Tensor.OUTPUT.0``."""
    found = desc.attr.get(_FX_NAME)
    if found is None:
        return ""
    name: str = found.s.decode(errors="replace")
    node, _, rest = name.partition("-")
    return f"{node}.{rest.rpartition('.OUTPUT.')[2] or '0'}" if node else ""


def _split_inputs(entries: Iterable[str], known: dict[str, GeInput]) -> tuple[tuple[GeInput | None, ...], tuple[str, ...]]:
    """Separate ``name:index`` (data), ``name:-1`` (control) and the empty string (an optional input that is not fed).

    `known` are the inputs of the operators before, by how they are written: an output mostly has several readers.
    """
    data: list[GeInput | None] = []
    controls: dict[str, None] = {}
    for entry in entries:
        found = known.get(entry)
        if found is not None or not entry:
            data.append(found)
            continue
        producer, _, output = entry.rpartition(":")
        if output == "-1":
            controls[producer] = None
            continue
        if not producer or not output.isdecimal():
            producer, output = entry, "0"
        found = known[entry] = GeInput(producer, int(output))
        data.append(found)
    return tuple(data), tuple(controls)


def _checked(ops: list[GeOp], where: str) -> tuple[GeOp, ...]:
    if not ops:
        raise InputError(f"{where} holds no operator; {_EXPECTED}")
    names: set[str] = set()
    for op in ops:
        if not op.name or not op.type:
            raise InputError(f"{where}: operator {len(names)} has no {'name' if not op.name else 'type'}; {_EXPECTED}")
        if op.name in names:
            raise InputError(f"{where}: two operators are called {op.name!r}")
        names.add(op.name)
    for op in ops:
        for source in op.inputs:
            if source is not None and source.producer not in names:
                raise InputError(f"{where}: {op.name!r} reads {source.producer}:{source.output}, which no operator produces")
    logger.debug("%s: %d operators", where, len(ops))
    return tuple(ops)
