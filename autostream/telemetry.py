"""Where reports go besides the caller: a bounded list in this process, and torch's structured trace (tlparse)."""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autostream.report.schema import Document

logger = logging.getLogger(__name__)

#: Reports a process keeps; the oldest is dropped first.
KEPT = 64

_documents: deque[Document] = deque(maxlen=KEPT)
_lock = threading.Lock()


def add(document: Document) -> None:
    """Keep a report for `autostream.reports()`, and add it to torch's structured trace if torch is loaded.

    A trace that cannot be written is logged: a report is no reason to fail, and others may rely on the plan by now.
    """
    with _lock:
        _documents.append(document)
    try:
        _trace(document)
    except Exception:
        logger.warning("the report could not be added to torch's structured trace", exc_info=True)


def reports() -> tuple[Document, ...]:
    """Return the kept reports of the graphs handled in this process, newest last. They hold plain data, no graph."""
    with _lock:
        return tuple(_documents)


def clear() -> None:
    """Forget the kept reports."""
    with _lock:
        _documents.clear()


def _trace(document: Document) -> None:
    if "torch" not in sys.modules:
        return
    try:
        from torch._logging._internal import trace_structured
    except ImportError:
        logger.debug("this version of torch has no structured trace")
        return
    trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": "autostream_report", "encoding": "json"},
        payload_fn=document.to_json,
        expect_trace_id=False,
    )
