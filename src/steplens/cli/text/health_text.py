"""The findings about the data as text, the same in every command."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from rich.console import Console
from rich.text import Text

from steplens.cli.text.text import plain
from steplens.trace.health import INFO, group_of_finding

_STYLE = {"error": "red", "warning": "yellow"}
_ORDER = {"error": 0, "warning": 1}
_PLURAL = {"error": "errors", "warning": "warnings", "info": "notes"}
_SINGULAR = {"error": "error", "warning": "warning", "info": "note"}


def show_health(out: Console, health: list[dict[str, Any]]) -> None:
    """Print the findings about the data, worst first; what several traces share is said once.

    Args:
        out: where to print.
        health: rows of ``Run.health()``.
    """
    out.print()
    if not health:
        out.print(plain("Health: nothing doubtful about the data", "bold"))
        return
    groups = _group_findings(health)
    out.print(plain(f"Health of the data: {_count_severities(group[0]['severity'] for group in groups)}", "bold"))
    sources = {str(finding.get("source", "")) for finding in health}
    for group in groups:
        severity = str(group[0]["severity"])
        text = plain(severity, _STYLE.get(severity, "dim")) + plain(f": {_finding_sentence(group, sources)}")
        lines = [*text.wrap(out, max(out.width - 2, 20))]
        for line in lines:
            line.rstrip()
            out.print(Text("  ") + line, no_wrap=True, overflow="crop")


def _group_findings(health: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Findings that several traces share, together; the one with the most events comes first."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for finding in health:
        key = group_of_finding(*(str(finding[name]) for name in ("severity", "check", "message")))
        groups.setdefault(key, []).append(finding)
    for group in groups.values():
        group.sort(key=lambda finding: -(finding["count"] or 0))
    return sorted(groups.values(), key=lambda group: _ORDER.get(str(group[0]["severity"]), 2))


def _finding_sentence(group: list[dict[str, Any]], sources: set[str]) -> str:
    finding = group[0]
    message, count = str(finding["message"]).removesuffix("."), finding["count"] or 0
    times = f" ({count} times)" if count > 1 and str(count) not in message else ""
    where, sources_named = "", {str(entry.get("source", "")) for entry in group}
    if len(sources_named) > 1:
        where = f", and so in {len(sources_named)} traces"
    elif len(sources) > 1:
        # what concerns the whole run is not in one of its parts
        path = PurePath(next(iter(sources_named)))
        covers_all = any(path in PurePath(source).parents for source in sources)
        where = "" if covers_all else f", in {path.name}"
    # a note says itself by how much; the pages say the same of it
    effect = "touches" if finding["severity"] == INFO else "doubtful"
    unsafe = f"; {effect}: {finding['unsafe']}" if finding["unsafe"] else ""
    return f"{message}{times}{where}{unsafe}"


def _count_severities(severities: Iterable[Any]) -> str:
    """``1 error, 2 warnings``."""
    texts = [str(severity) for severity in severities]
    counts = {severity: texts.count(severity) for severity in _PLURAL}
    return ", ".join(f"{count} {(_SINGULAR if count == 1 else _PLURAL)[severity]}" for severity, count in counts.items() if count)
