"""Reads the columns of one large trace file; the only place that decides how many processes read it."""

from __future__ import annotations

from pathlib import Path

from steplens.errors import InputError
from steplens.readers.json_events import JsonEventFile
from steplens.readers.kineto_events import EventColumns


def read_columns(path: Path) -> tuple[EventColumns, JsonEventFile]:
    """All events of ``path`` as columns, and the file object with header, footer and truncation."""
    if not path.exists():
        raise InputError(path, "does not exist")
    file = JsonEventFile(path)
    columns = EventColumns()
    columns.read(file)
    return columns, file
