"""The memory of one device over time, by what it is used for: as a page with a picture, as points, or as events.

The suffix of the file decides which: ``.html``, ``raw.json.gz`` (events), anything else (points).
"""

from __future__ import annotations

import base64
import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl

from steplens.analysis.memory.memory_categories import UNKNOWN, uncategorised_events
from steplens.analysis.memory.memory_timeline import Timeline, category_timeline
from steplens.common.errors import InputError
from steplens.formats.memory_categories import CATEGORIES
from steplens.readers.steplens_run import memory_categories
from steplens.trace.schema import CORE_CPU
from steplens.writers.common.rows import ROWS_PER_CHUNK, write_rows
from steplens.writers.exports.memory_timeline.picture import stacked_areas
from steplens.writers.exports.subject import Subject

#: what is said wherever categories are missing
NO_CATEGORIES = (
    "the categories of memory are unknown: they are computed when export_memory_timeline is called on the profiler "
    "that recorded, with record_shapes, profile_memory and with_stack (or with_modules)"
)

_DEVICE = re.compile(r"^(cpu|cuda|npu|xpu|hip)(?::(\d{1,5}))?$")

#: darkgreen, goldenrod, black, mediumpurple, red, mediumblue, royalblue, grey
_COLOURS = (0x006400, 0xDAA520, 0x000000, 0x9370DB, 0xFF0000, 0x0000CD, 0x4169E1, 0x808080)
_GB = 1024**3


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of one device.

    Attributes:
        device: what it is called, such as "cuda:0".
        events: rows of ``memory_categories.EVENTS``, sorted by time.
        categorised: whether the events have categories.
        allocated: the most that the allocator counted, bytes; likewise ``reserved``; None where it did not say.
    """

    device: str
    events: pl.DataFrame
    categorised: bool
    allocated: int | None
    reserved: int | None


def memory_of(subject: Subject, device: str | None = None) -> DeviceMemory:
    """The memory of one device of a trace, with the categories that its run directory holds.

    Args:
        subject: the trace, and the run directory with the categories.
        device: "cpu", "cuda:0", "npu:0" ...; the accelerator with most events by default, or else the CPU.

    Raises:
        InputError: the device is written in no known way, or the trace has no memory events of it.
    """
    trace = subject.trace
    recorded = memory_categories.read_categories(subject.path) if subject.path.is_dir() else None
    events = uncategorised_events(trace) if recorded is None else recorded
    if events.is_empty():
        raise InputError(subject.path, "holds no memory events", "Record it with profile_memory=True")
    counts = events.group_by("device_type", "device").len().sort(pl.col("device_type") == CORE_CPU, -pl.col("len").cast(pl.Int64))
    kind, number = _parse_device(subject.path, device) if device is not None else counts.row(0)[:2]
    number = max(number, 0)
    of_device = (pl.col("device_type") == kind) & (pl.col("device").clip(0) == number)
    events = events.filter(of_device)
    if events.is_empty():
        devices = sorted({_device_name(kind, number) for kind, number, _ in counts.iter_rows()})
        raise InputError(subject.path, f"has no memory events of {device}", f"It has those of {', '.join(devices)}")
    counted = trace.required("memory").filter(
        (pl.col("device_type").cast(pl.String) == kind) & (pl.col("device").fill_null(0).clip(0) == number)
    )
    allocated, reserved = counted.select(pl.col("allocated").max(), pl.col("reserved").max()).collect().row(0)
    return DeviceMemory(_device_name(kind, number), events, recorded is not None, allocated, reserved)


def _parse_device(path: Path, device: str) -> tuple[str, int]:
    matched = _DEVICE.match(device)
    if not matched:
        raise InputError(path, f"cannot have a device {device!r}", "Write it as cpu, cuda:0 or npu:0")
    return matched[1].upper(), int(matched[2] or 0)


def _device_name(kind: str, number: int) -> str:
    return "cpu" if kind == CORE_CPU else f"{kind.lower()}:{max(number, 0)}"


def write(memory: DeviceMemory, name: str, handle: IO[bytes]) -> None:
    """Write the file; the suffix of its name decides among the forms, and the handle compresses where the name says so."""
    if name.endswith(".html"):
        handle.write(_html_page(memory).encode())
    elif name.endswith("raw.json.gz"):
        _write_events(memory, handle)
    else:
        _write_points(category_timeline(memory.events), handle)


def _write_events(memory: DeviceMemory, handle: IO[bytes]) -> None:
    """``[[ts_ns, action, bytes, category], ...]``, in order of time and action."""
    handle.write(b"[")
    for number, part in enumerate(memory.events.iter_slices(ROWS_PER_CHUNK)):
        comma = pl.when((pl.int_range(pl.len()) == 0) & (number == 0)).then(pl.lit("[")).otherwise(pl.lit(",["))
        columns = [cell for column in ("action", "bytes", "category") for cell in (",", pl.col(column))]
        write_rows(handle, part, comma, pl.col("time_ns"), *columns, "]")
    handle.write(b"]")


def _write_points(found: Timeline, handle: IO[bytes]) -> None:
    """``[[ts_us, ...], [[0, bytes per category ...], ...]]``; cumulative sums of a row are the edges of its bands."""
    handle.write(b"[[" + ",".join(map(str, found.time_us.tolist())).encode() + b"],[")
    rows = pl.DataFrame(found.sizes, schema=list(CATEGORIES), orient="row")
    for number, part in enumerate(rows.iter_slices(ROWS_PER_CHUNK)):
        comma = pl.when((pl.int_range(pl.len()) == 0) & (number == 0)).then(pl.lit("[0")).otherwise(pl.lit(",[0"))
        write_rows(handle, part, comma, *(cell for category in CATEGORIES for cell in (",", pl.col(category))), "]")
    handle.write(b"]]")


def _html_page(memory: DeviceMemory) -> str:
    timeline_columns = category_timeline(memory.events)
    # the CPU's allocator keeps nothing in reserve
    maxima = {"allocated": memory.allocated, "reserved": memory.reserved}
    title = [f"Max memory {word}: {size / _GB:.2f} GB" for word, size in maxima.items() if size]
    labels = [name if name != CATEGORIES[UNKNOWN] else "Unknown" for name in CATEGORIES]
    picture = stacked_areas(
        (timeline_columns.time_us - timeline_columns.time_us[0]) / 1000,
        np.maximum(timeline_columns.sizes, 0) / _GB,
        labels,
        _COLOURS,
        [f"Memory of {memory.device}", *title],
        ("Time (ms)", "Memory (GB)"),
    )
    peak = int(timeline_columns.sizes.sum(axis=1).argmax())
    after_ms = (timeline_columns.time_us[peak] - timeline_columns.time_us[0]) / 1000
    rows = "".join(
        f"<tr><td>{label}</td><td>{size:,}</td></tr>"
        for label, size in zip(labels, timeline_columns.sizes[peak].tolist(), strict=True)
    )
    note = "" if memory.categorised else f"<p>{html.escape(NO_CATEGORIES[0].upper() + NO_CATEGORIES[1:])}.</p>"
    encoded = base64.b64encode(picture).decode()
    name = html.escape(memory.device)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Memory timeline of {name}</title></head>\n<body>\n'
        f'<img alt="Memory of {name} over time by category" src="data:image/png;base64,{encoded}">\n{note}\n'
        f"<table><caption>Bytes at the peak, {after_ms:.3f} ms after the first event</caption>"
        f"<tr><th>Category</th><th>Bytes</th></tr>{rows}</table>\n</body></html>\n"
    )
