"""Small JSON files beside recorded data, whoever wrote them, and findings that steplens wrote into some of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steplens.common import json_text
from steplens.common.storage.files import read_bytes
from steplens.trace.health import RUN_OPTIONS, WARNING, HealthLog

_LARGEST_BYTES = 64 << 20
#: a count of a finding that is larger is damage
_LARGEST_COUNT = 1 << 62


def read_json(path: Path, health: HealthLog | None = None) -> dict[str, Any]:
    """The object in a small JSON file; empty when the file is missing, and a finding when it is damaged."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise ValueError("larger than a file of its kind can be")
        data = read_bytes(path)
        value = json_text.loads(data)
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
        if b"\\ud" in data.lower():
            value = dict(_as_text(value))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        if health is not None:
            health.add("damaged_side_file", WARNING, 1, f"{path.name} cannot be used ({error})", RUN_OPTIONS)
        return {}
    return value


def report_left_out(count: int, what: str, health: HealthLog, unsafe: str) -> None:
    """Report records of a side file that make no sense, if there are any.

    Args:
        count: how many.
        what: they are, and of which file.
        health: gets the finding.
        unsafe: what the lack of them makes unsafe.
    """
    if count:
        health.add("damaged_side_file", WARNING, count, f"{what} are damaged and were left out", unsafe)


def as_list(value: Any) -> list[Any]:
    """A list of a side file; empty where something else stands in its place."""
    return value if isinstance(value, list) else []


def as_object(value: Any) -> dict[str, Any]:
    """An object of a side file; empty where something else stands in its place."""
    return value if isinstance(value, dict) else {}


def add_findings(state: Mapping[str, Any], health: HealthLog) -> None:
    """Add the findings that were written down while recording, or by the analysis of its windows."""
    for finding in as_list(state.get("health")):
        if isinstance(finding, dict):
            text = {key: str(finding.get(key, "")) for key in ("check", "severity", "message", "unsafe")}
            count = finding.get("count")
            count = count if type(count) is int and 0 < count < _LARGEST_COUNT else 1
            health.add(text["check"], text["severity"], count, text["message"], text["unsafe"])


def _as_text(value: Any) -> Any:
    """The value with "?" for halves of surrogate pairs, which JSON can write and no text can hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    return {_as_text(key): _as_text(item) for key, item in value.items()} if isinstance(value, dict) else value
