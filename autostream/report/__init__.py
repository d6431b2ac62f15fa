"""What is told about a schedule: one light document, and the ways to show and keep it."""

from __future__ import annotations

from autostream.report.document import Document, Provenance, build
from autostream.report.files import save

__all__ = ["Document", "Provenance", "build", "save"]
