from __future__ import annotations

from pathlib import Path

import pytest

from autostream.errors import InputError
from autostream.program import read_ascend_ir
from autostream.program.reading.ge_dump import GeInput, load_ops
from autostream.program.reading.ge_proto import message

TEXT = """
name: "g"
op { name: "x" type: "Data" attr { key: "index" value { i: 0 } } output_desc { name: "y" dtype: DT_FLOAT } }
op {
  name: "Relu" type: "Relu" input: "x:0" input: "" input: "x:-1"
  attr { key: "_user_stream_label" value { s: "1" } }
  attr { key: "unknown" value { t { data: "abc" } } }
  input_desc { name: "x" shape { dim: 8 } } input_desc { name: "bias" }
  output_desc { name: "y" attr { key: "_fx_tensor_name" value { s: "relu_1-aten.relu.default.OUTPUT.0" } } }
}
some_new_field { deeper: 3 }
"""

PBTXT = r"""
node {
    name: "x"
    op: "Data"
    attr { key: "index" value { s: 'i: 0\n' } }
    attr { key: "[o]y" value { s: 'name: "y"\ndtype: DT_FLOAT\n' } }
}
node {
    name: "Relu"
    op: "Relu"
    input: "x:0"
    input: ""
    input: "^x"
    attr { key: "_user_stream_label" value { s: 's: "1"\n' } }
    attr { key: "[i]x" value { s: 'name: "x"\nshape {\n  dim: 8\n}\n' } }
    attr { key: "[i]bias" value { s: "name: \"bias\"\n" } }
    attr {
        key: "[o]y"
        value { s: 'name: "y"\nattr {\n  key: "_fx_tensor_name"\n  value { s: "relu_1-aten.relu.default.OUTPUT.0" }\n}\n' }
    }
}
"""


MODEL = f'name: "m" custom_version: "" version: 1 graph {{ {TEXT} }}'


@pytest.mark.parametrize("text", [TEXT, PBTXT, "# a comment\n" + TEXT, MODEL, f"graph <{TEXT}>"])
def test_text_forms(text: str) -> None:
    data, relu = load_ops(text)
    assert (data.name, data.type, data.label, data.inputs) == ("x", "Data", None, ())
    assert relu.label == "1"
    assert relu.inputs == (GeInput(producer="x", output=0), None)
    assert relu.controls == ("x",)
    assert relu.input_names == ("x", "bias")
    assert relu.output_names == ("y",)
    assert relu.fx_values == ("relu_1.0",)
    assert relu.fx_node == "relu_1"


def test_binary_form_and_files(tmp_path: Path) -> None:
    from google.protobuf import text_format

    binary = text_format.Parse(TEXT, message("GraphDef")(), allow_unknown_field=True).SerializeToString()
    assert load_ops(binary) == load_ops(TEXT)
    model = message("ModelDef")(graph=[message("GraphDef").FromString(binary)]).SerializeToString()
    marked = TEXT.encode("utf-8-sig")
    forms = {"a.pb": binary, "b.txt": TEXT.encode(), "c.pbtxt": PBTXT.encode(), "d.pb": model, "e.txt": marked}
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
        assert load_ops(tmp_path / name) == load_ops(str(tmp_path / name)) == load_ops(TEXT)


def test_a_graph_that_ge_wrote_keeps_its_port_names_in_attributes() -> None:
    op = message("OpDef")(name="a", type="Assign")
    op.input_desc.add()
    op.input_desc.add()
    op.attr["_input_name_key"].list.s.extend([b"value", b"ref"])
    op.attr["_input_name_value"].list.i.extend([1, 0])
    graph = message("GraphDef")(name="g", op=[op])
    assert load_ops(graph.SerializeToString())[0].input_names == ("ref", "value")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "holds no operator"),
        (b"\x89PNG\r\n\x1a\n not a graph", "not an Ascend IR graph"),
        (b'ir_version: 7\nproducer_name: "GE"\n', "not an Ascend IR graph"),
        (b'op { name: "x" type: ', "the parser stopped at 1:22"),
        (
            b'node { name: "x" op: "Relu" attr { key: "_user_stream_label" value { s: "i: {" } } }',
            "attribute '_user_stream_label' of node 'x'",
        ),
        (b'name: "only a name"\n', "holds no operator"),
        (b'op { name: "x" }', "operator 0 has no type"),
        (b'graph { op { name: "x" type: "Data" } } graph { name: "sub" }', "a model of 2 graphs"),
        (b'op { name: "x" type: "Data" } op { name: "x" type: "Data" }', "two operators are called 'x'"),
        (b'op { name: "r" type: "Relu" input: "gone:0" }', "'r' reads gone:0, which no operator produces"),
    ],
)
def test_what_is_no_ascend_ir_is_refused_with_the_reason(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "broken.pbtxt"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        read_ascend_ir(path)
    assert complaint in str(raised.value)
    assert "broken.pbtxt" in str(raised.value)


def test_missing_files_and_wrong_types_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.pb.*No such file"):
        read_ascend_ir(tmp_path / "nowhere.pb")
    with pytest.raises(InputError, match="not int"):
        read_ascend_ir(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the given text"):
        read_ascend_ir("op {\n")


def test_what_is_told_of_tensors() -> None:
    told = {
        "shape { dim: 2 dim: 3 } dtype: DT_BF16": ((2, 3), "DT_BF16", False),
        "shape { }": ((), "DT_UNDEFINED", False),
        "dtype: DT_INT8": (None, "DT_INT8", False),
        "dtype: DT_OF_TOMORROW shape { dim: 1 }": ((1,), "DT_UNDEFINED", False),
        "shape { dim: -1 dim: 3 }": (None, "DT_UNDEFINED", True),
        'attr { key: "_meta" value { s: "Tensor(dtype=torch.int8, shape=torch.Size([4, 5])" } }': ((4, 5), "DT_UNDEFINED", False),
        'attr { key: "_meta" value { s: "Tensor(dtype=torch.int8, shape=torch.Size([])" } }': ((), "DT_UNDEFINED", False),
        'attr { key: "_meta" value { s: "Tensor(dtype=torch.int8, shape=torch.Size([s0, 5])" } }': (None, "DT_UNDEFINED", True),
    }
    for desc, wanted in told.items():
        tensor = load_ops(f'op {{ name: "x" type: "Data" output_desc {{ name: "y" {desc} }} }}')[0].tensors[0]
        assert (tensor.shape, tensor.dtype, tensor.dynamic) == wanted, desc


def test_what_only_prices_ask_for_can_be_left_out() -> None:
    text = """
    op {
      name: "c" type: "HcomAllReduce" input: "x:0"
      attr { key: "group" value { s: "g" } } attr { key: "rank_size" value { i: 4 } }
      output_desc { name: "y" dtype: DT_FLOAT shape { dim: 8 } }
    }
    op { name: "x" type: "Data" output_desc { name: "y" } }
    """
    full, bare = load_ops(text)[0], load_ops(text, described=False)[0]
    assert (full.group, full.group_size, full.shapes, len(full.tensors)) == ("g", 4, ((8,),), 1)
    assert bare == full._replace(group="", group_size=None, shapes=(), tensors=())


def test_the_ranks_of_a_collective() -> None:
    text = 'op { name: "d" type: "MoeDistributeDispatchV2" attr { key: "ep_world_size" value { i: 16 } } }'
    assert load_ops(text)[0].group_size == 16
    dumped = r"""node { name: "d" op: "HcomAllGather" attr { key: "rank_size" value { s: 'i: 8\n' } } }"""
    assert load_ops(dumped)[0].group_size == 8
