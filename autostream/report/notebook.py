"""What a notebook shows of a report and of findings: a line of text, and a picture or a table."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autostream.program.model import Finding, Severity
from autostream.report.svg import timeline_svg
from autostream.report.wording import plural, verdict_line

if TYPE_CHECKING:
    from autostream.report.schema import Document  # which shows itself by way of this module

#: Readable on white and on black.
_COLOURS = {Severity.ERROR: "#e0524a", Severity.WARNING: "#d0801f", Severity.NOTE: "#4c86ec"}
#: Findings that are listed.
_LISTED = 20


def document_html(document: Document) -> str:
    """Return the verdict in one line, and the timelines."""
    return f"<div><b>{html.escape(verdict_line(document))}</b></div>\n{timeline_svg(document)}"


def findings_html(findings: Sequence[Finding], accepted: Sequence[tuple[Finding, str]] = ()) -> str:
    """Return findings as a list, the worst first: what is wrong, where, and how to mend it.

    Args:
        findings: those that count.
        accepted: those that do not, each with the reason why somebody accepted it.
    """
    order = list(Severity)
    worst_first = sorted(findings, key=lambda finding: order.index(finding.severity))
    items = "\n".join(_item(finding) for finding in worst_first[:_LISTED])
    more = f"\n<div>and {len(findings) - _LISTED} more</div>" if len(findings) > _LISTED else ""
    reasons = "".join(f"\n<div>accepted: {html.escape(f'{finding.kind} ({reason})')}</div>" for finding, reason in accepted)
    return f"<div><b>{html.escape(counted(findings).capitalize())}</b></div>\n{items}{more}{reasons}"


def counted(findings: Sequence[Finding]) -> str:
    """Return ``"1 error, 2 notes"``."""
    numbers = {severity: sum(finding.severity is severity for finding in findings) for severity in Severity}
    return ", ".join(plural(number, severity.value) for severity, number in numbers.items() if number) or "no findings"


def _item(finding: Finding) -> str:
    colour, told = _COLOURS[finding.severity], html.escape(f": {finding.explanation}")
    where = [place for place in finding.where if place] or list(finding.steps)
    lines = [
        f'<b style="color:{colour}">{finding.severity.value}</b> <b>{html.escape(finding.kind)}</b>{told}',
        f"<i>at</i> {html.escape('; '.join(dict.fromkeys(where)))}" if where else "",
        f"<i>fix</i> {html.escape(finding.remedy)}" if finding.remedy else "",
    ]
    text = "<br>".join(line for line in lines if line)
    return f'<div style="border-left:4px solid {colour};padding:2px 10px;margin:6px 0">{text}</div>'
