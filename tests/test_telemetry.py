from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator

import pytest

from autostream import telemetry
from tests.report import samples


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    telemetry.clear()
    yield
    telemetry.clear()


def test_newest_last_and_bounded() -> None:
    for number in range(telemetry.KEPT + 3):
        telemetry.add(samples.document(name=f"graph {number}"))
    names = [document.name for document in telemetry.reports()]
    assert len(names) == telemetry.KEPT
    assert (names[0], names[-1]) == ("graph 3", f"graph {telemetry.KEPT + 2}")


def test_threads_lose_nothing() -> None:
    document = samples.document()
    threads = [threading.Thread(target=lambda: [telemetry.add(document) for _ in range(8)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(telemetry.reports()) == 32


def test_the_report_is_an_artifact_of_torchs_structured_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    internal = pytest.importorskip("torch._logging._internal")
    seen: list[logging.LogRecord] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    monkeypatch.setattr(internal.trace_log, "handlers", [Handler()])
    telemetry.add(samples.document())
    (record,) = [record for record in seen if "artifact" in getattr(record, "metadata", {})]
    assert record.metadata["artifact"] == {"name": "autostream_report", "encoding": "json"}  # type: ignore[attr-defined]
    assert json.loads(record.payload)["name"] == "sample"  # type: ignore[attr-defined]
