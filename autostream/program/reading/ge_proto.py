"""The protobuf messages of Ascend IR, as far as they are read here.

Field numbers are those of GE's public ge_ir.proto. Fields not listed are skipped: in binary form by protobuf itself, in text
form by the parser's option for unknown fields. The messages live in a pool of their own, so that they never meet the ones
that TorchAir registers under the same names.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "autostream.ir"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {"string": _Field.TYPE_STRING, "bytes": _Field.TYPE_BYTES, "int64": _Field.TYPE_INT64, "bool": _Field.TYPE_BOOL}

#: Message -> field -> (number, type). A type is a scalar, the enumeration ``DataType``, another message, ``[type]`` for repeated
#: or ``{type}`` for a map from string.
_GE = {
    "ListValue": {"s": (2, "[bytes]"), "i": (3, "[int64]")},
    "AttrDef": {"list": (1, "ListValue"), "s": (2, "bytes"), "i": (3, "int64"), "b": (5, "bool")},
    "ShapeDef": {"dim": (1, "[int64]")},
    "TensorDescriptor": {"name": (1, "string"), "dtype": (2, "DataType"), "shape": (3, "ShapeDef"), "attr": (5, "{AttrDef}")},
    "OpDef": {
        "name": (1, "string"),
        "type": (2, "string"),
        "input": (5, "[string]"),
        "attr": (10, "{AttrDef}"),
        "input_desc": (33, "[TensorDescriptor]"),
        "output_desc": (34, "[TensorDescriptor]"),
    },
    "GraphDef": {"name": (1, "string"), "op": (6, "[OpDef]")},
    "ModelDef": {"name": (1, "string"), "graph": (7, "[GraphDef]")},
}

#: GE's data types by number.
DATA_TYPES = (
    "UNDEFINED", "FLOAT", "FLOAT16", "INT8", "UINT8", "INT16", "UINT16", "INT32", "INT64", "UINT32", "UINT64", "BOOL", "DOUBLE",
    "STRING", "DUAL_SUB_INT8", "DUAL_SUB_UINT8", "COMPLEX64", "COMPLEX128", "QINT8", "QINT16", "QINT32", "QUINT8", "QUINT16",
    "RESOURCE", "STRING_REF", "DUAL", "VARIANT", "BF16", "INT4", "UINT1", "INT2", "UINT2", "COMPLEX32", "HIFLOAT8", "FLOAT8_E5M2",
    "FLOAT8_E4M3FN", "FLOAT8_E8M0", "FLOAT6_E3M2", "FLOAT6_E2M3", "FLOAT4_E2M1", "FLOAT4_E1M2", "HIFLOAT4",
)  # fmt: skip

#: The TensorFlow-like text that TorchAir dumps; it exists as text only, so the numbers are arbitrary.
_DUMP = {
    "DumpValue": {"s": (1, "bytes")},
    "DumpAttr": {"key": (1, "string"), "value": (2, "DumpValue")},
    "DumpNode": {"name": (1, "string"), "op": (2, "string"), "input": (3, "[string]"), "attr": (4, "[DumpAttr]")},
    "DumpGraph": {"node": (1, "[DumpNode]")},
}


@functools.cache
def message(name: str) -> Any:
    """Return the message class ``GraphDef``, ``OpDef``, ``TensorDescriptor``, ``AttrDef``, ``ModelDef`` or ``DumpGraph``."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="autostream_ir.proto", package=_PACKAGE, syntax="proto3")
    types = file.enum_type.add(name="DataType")
    for number, name in enumerate(DATA_TYPES):
        types.value.add(name=f"DT_{name}", number=number)
    for name, fields in (_GE | _DUMP).items():
        descriptor = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add_field(descriptor, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _add_field(owner: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str) -> None:
    field = owner.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if kind[0] in "[{":
        field.label = _Field.LABEL_REPEATED
    element = kind.strip("[]{}")
    if kind[0] == "{":
        entry = owner.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        _add_field(entry, "key", 1, "string")
        _add_field(entry, "value", 2, element)
        element = f"{owner.name}.{entry.name}"
    if element in _SCALARS:
        field.type = _SCALARS[element]
    elif element == "DataType":
        field.type, field.type_name = _Field.TYPE_ENUM, f".{_PACKAGE}.{element}"
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{element}"
