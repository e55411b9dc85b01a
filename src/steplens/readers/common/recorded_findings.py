"""Findings that steplens wrote down while it recorded, or when it analysed what it had recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steplens.trace.health import HealthLog

#: a count that is larger is damage
_MOST = 1 << 62


def add_findings(state: Mapping[str, Any], health: HealthLog) -> None:
    """Add the findings that were written down while recording, or by the analysis of its windows."""
    for finding in state.get("health", []) if isinstance(state.get("health"), list) else []:
        if isinstance(finding, dict):
            text = {key: str(finding.get(key, "")) for key in ("check", "severity", "message", "unsafe")}
            health.add(text["check"], text["severity"], _to_count(finding.get("count")), text["message"], text["unsafe"])


def _to_count(value: Any) -> int:
    return value if type(value) is int and 0 < value < _MOST else 1
