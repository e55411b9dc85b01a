"""Results of the Ascend PyTorch Profiler, and what happens to them on their way to a user."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shutil
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from steplens.readers.ascend.database import ascend_db
from steplens.readers.ascend.text import ascend_text
from steplens.trace.trace import Trace

from ..shared_data import shared
from .kineto_file import load, text_of_events

OUTPUT = "ASCEND_PROFILER_OUTPUT"

Event = dict[str, Any]

#: processes of the timeline whose times are the device's
DEVICE_PROCESSES = ("Ascend Hardware", "HCCL", "Communication", "Overlap Analysis")


def copied(name: str, folder: Path) -> Path:
    """A run directory of the recorded results, to be changed."""
    source = shared("ascend_pytorch", name)
    target = folder / source.name
    shutil.copytree(source, target)
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


def read_text(run: Path) -> Trace:
    """The trace of text results."""
    return ascend_text.read_trace(run / OUTPUT, run)


def read_database(run: Path) -> Trace:
    """The trace of a result database."""
    return ascend_db.read_trace(run / OUTPUT, run)


class Timeline:
    """The events of trace_view.json, with every digit."""

    def __init__(self, run: Path) -> None:
        self.path = run / OUTPUT / "trace_view.json"
        self.events: list[Event] = load(self.path.read_bytes())  # type: ignore[assignment]
        self.processes = {event["pid"]: event["args"]["name"] for event in self.events if event.get("name") == "process_name"}

    def is_of(self, event: Event, *processes: str) -> bool:
        """Whether an event belongs to one of the processes with these names."""
        return self.processes.get(event.get("pid")) in processes

    def is_task(self, event: Event) -> bool:
        """Whether an event is a task of the hardware."""
        return event.get("ph") == "X" and self.is_of(event, "Ascend Hardware")

    def shift(self, microseconds: int, wanted: Callable[[Event], bool]) -> None:
        """Move events in time."""
        for event in self.events:
            if "ts" in event and event.get("ph") != "M" and wanted(event):
                event["ts"] = moved(event["ts"], microseconds)

    def write(self) -> None:
        """Write them back."""
        self.path.write_text("[" + text_of_events(self.events, ",\n") + "]")


def moved(value: Any, microseconds: int) -> Any:
    """A time of text or number, later."""
    if isinstance(value, str):
        return f"{Decimal(value.strip()) + microseconds}" + ("\t" if value.endswith("\t") else "")
    return value + microseconds


class Table:
    """A CSV file."""

    def __init__(self, run: Path, name: str) -> None:
        self.path = run / OUTPUT / name
        self.rows = list(csv.DictReader(io.StringIO(self.path.read_bytes().decode())))

    def write(self) -> None:
        """Write it back."""
        with self.path.open("w", newline="") as handle:
            writer = csv.DictWriter(handle, self.rows[0].keys())
            writer.writeheader()
            writer.writerows(self.rows)


def shift_device(run: Path, microseconds: int) -> None:
    """The clock of the device, in all text results that tell its time."""
    timeline = Timeline(run)
    timeline.shift(microseconds, lambda event: timeline.is_of(event, *DEVICE_PROCESSES))
    timeline.write()
    table = Table(run, "kernel_details.csv")
    for row in table.rows:
        row["Start Time(us)"] = moved(row["Start Time(us)"], microseconds)
    table.write()


def sql(run: Path, *statements: str) -> None:
    """Change the database of a run directory."""
    (path,) = (run / OUTPUT).glob("ascend_pytorch_profiler*.db")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def drop_key(path: Path, key: str) -> None:
    """Remove a member of a JSON file."""
    document = json.loads(path.read_text())
    document.pop(key, None)
    path.write_text(json.dumps(document))
