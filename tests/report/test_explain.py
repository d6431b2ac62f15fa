from __future__ import annotations

import pytest

from autostream.cost.model import Machine
from autostream.errors import InputError
from autostream.report.document import Document
from autostream.report.explain import explain
from tests.report import samples

MACHINE = Machine(name="910B2", aic=24, aiv=48, sync=500, sync_error=1.0)


@pytest.fixture
def document() -> Document:
    return samples.document(machine=MACHINE)


def facts(document: Document, name: str) -> dict[str, str]:
    return dict(explain(document, name).facts)


def test_an_operator_that_moved(document: Document) -> None:
    found = facts(document, "exp")
    assert found["where"] == "stream 'autostream_1', a vector operator"
    assert found["time"] == "60.5 us to 190.5 us, 130.0 us simulated, 10.0 us of them because it shares the chip"
    assert found["as given"] == "starts 199.5 us earlier than in the graph as it was given, where it runs on 'default'"
    assert found["is waited for by"] == "'add' on 'default'"
    assert found["beside"] == "'mm_1' (aten.mm) 90.5 us, 'mm' (aten.mm) 39.5 us"
    assert "slack" in found and "vector compute 119.0 us" in found["cost"]
    assert found["from"] == "layers.0.exp"


def test_an_operator_on_the_critical_path(document: Document) -> None:
    found = facts(document, "add")
    assert found["critical"] == ("on the critical path; it had to wait for its place on the stream alone: 'mm_1'")
    assert found["waits for"] == "'exp' on 'autostream_1' (data)"
    assert found["beside"] == "nothing runs at the same time"
    assert found["slack"] == "none: what it takes longer, the whole takes longer, 9.1 % of the whole"


def test_a_part_of_a_name_will_do_if_it_is_clear(document: Document) -> None:
    assert explain(document, "aten.exp").name == "exp"
    with pytest.raises(InputError, match=r"'aten' is in the name or kind of 5 operators: mm, mm_1, mul, exp, add"):
        explain(document, "aten")


def test_an_unknown_operator(document: Document) -> None:
    with pytest.raises(InputError, match=r"no operator 'mm_2' in the report of 'sample' \(did you mean 'mm_1'\?\)"):
        explain(document, "mm_2")


def test_a_declined_graph() -> None:
    found = facts(samples.document(verdict=samples.declined(), after=None, program=None), "mul")
    assert found["where"] == "stream 'default', a vector operator"
    assert "slack" not in found and "critical" not in found
