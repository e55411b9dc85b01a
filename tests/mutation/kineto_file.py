"""Good Kineto captures, and what happens to them on their way to a user."""

from __future__ import annotations

import functools
import gzip
import json
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl

from steplens.readers.kineto import kineto
from steplens.trace.trace import Trace

from ..shared_data import shared

CUDA = ["cuda_alexnet", "cuda_nccl_distributed", "cuda_ns_resolution_rank0", "cuda_sampled_rank0", "rocm_mi250_minitoy"]

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")
TASKS = DEVICE[:3]
RUNTIME = ("cuda_runtime", "cuda_driver", "hip_runtime")

_UNTOUCHED: dict[str, list[tuple[str, str, int]]] = {}

Event = dict[str, Any]
Document = dict[str, Any]
Finding = tuple[str, str, int]


@functools.cache
def _text(name: str) -> bytes:
    return gzip.decompress(shared("kineto", f"{name}.json.gz").read_bytes())


def capture(name: str) -> Document:
    """A fresh copy of a recorded trace, with every digit of its times."""
    return load(_text(name))


def load(text: str | bytes) -> Document:
    """A document whose fractions are decimals, since a double has no room for the ns of a time since 1970."""
    document: Document = json.loads(text, parse_float=Decimal)
    return document


#: a character for private use, which no capture has: around what JSON has no quotes for
_NUMBER = "\ue000"


def _quoted(number: Decimal) -> str:
    return f"{_NUMBER}{number}{_NUMBER}"


#: one for all events, of which a capture has tens of thousands
_ENCODER = json.JSONEncoder(default=_quoted)


def _without_quotes(text: str) -> str:
    for mark in (_NUMBER, json.dumps(_NUMBER)[1:-1]):
        text = text.replace(f'"{mark}', "").replace(f'{mark}"', "")
    return text


def dumps(value: Any, **options: Any) -> str:
    """JSON of a document that ``load`` gave."""
    return _without_quotes(json.dumps(value, default=_quoted, **options))


def text_of_events(events: list[Event], between: str) -> str:
    """JSON of one event after the other."""
    return _without_quotes(between.join(map(_ENCODER.encode, events)))


def text_of(document: Document) -> str:
    """A trace in the layout that Kineto uses: one event after the other, two spaces in front of each."""
    events = text_of_events(document["traceEvents"], ",\n  ")
    parts = []
    for key, value in document.items():
        parts.append(f'"traceEvents": [\n  {events}\n]' if key == "traceEvents" else f"{dumps(key)}: {dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def write(document: Document, path: Path) -> Path:
    """``text_of`` in a file."""
    path.write_text(text_of(document))
    return path


def findings(trace: Trace) -> list[Finding]:
    """Check, severity and count of the findings of a trace, sorted."""
    return [] if trace.health is None else sorted(trace.health.select("check", "severity", "count").rows())


def certificate(document: Document, folder: Path) -> list[Finding]:
    """The findings about a trace after it was written and read."""
    return findings(kineto.read(write(document, folder / "trace.json")))


def new_findings(document: Document, name: str, folder: Path) -> list[Finding]:
    """The findings that the untouched capture does not have."""
    if name not in _UNTOUCHED:
        _UNTOUCHED[name] = certificate(capture(name), folder)
    return [one for one in certificate(document, folder) if one not in _UNTOUCHED[name]]


def is_task(event: Event) -> bool:
    return event.get("cat") in TASKS


def is_kernel(event: Event) -> bool:
    return event.get("cat") == "kernel"


def is_launch(event: Event) -> bool:
    return event.get("cat") in RUNTIME and "Launch" in event["name"]


def without(document: Document, wanted: Callable[[Event], bool], *, share: float, seed: int = 0) -> int:
    """Remove a share of the events that are wanted (at least one); how many."""
    events = document["traceEvents"]
    rows = [row for row, event in enumerate(events) if wanted(event)]
    gone = set(random.Random(seed).sample(rows, max(int(share * len(rows)), 1)))
    document["traceEvents"] = [event for row, event in enumerate(events) if row not in gone]
    return len(gone)


def shift(document: Document, wanted: Callable[[Event], bool], microseconds: int) -> None:
    """Move events in time; arrows that end on the device move with it."""
    device_lanes = {(event["pid"], event["tid"]) for event in document["traceEvents"] if event.get("cat") in DEVICE}
    for event in document["traceEvents"]:
        if "ts" in event and (wanted(event) or (event.get("ph") == "f" and (event["pid"], event["tid"]) in device_lanes)):
            event["ts"] += microseconds


def shift_all(document: Document, microseconds: int) -> None:
    """Move the whole trace in time."""
    for event in document["traceEvents"]:
        if "ts" in event:
            event["ts"] += microseconds


def shuffle(document: Document, seed: int) -> None:
    """Another order of the events; of several names of one thread the last one counts, so those keep their order."""
    names = [event for event in document["traceEvents"] if event.get("ph") == "M"]
    others = [event for event in document["traceEvents"] if event.get("ph") != "M"]
    random.Random(seed).shuffle(others)
    half = len(others) // 2
    document["traceEvents"] = others[:half] + names + others[half:]


def equal_tables(one: Trace, other: Trace) -> bool:
    """Whether two traces hold the same, findings aside; rows without a number may come in the order of the file."""
    names = set(one) - {"health"}
    return names == set(other) - {"health"} and all(_equal(one.table(name), other.table(name)) for name in names)


def _equal(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    return one.equals(other) or ("id" not in one.columns and one.sort(one.columns).equals(other.sort(other.columns)))
