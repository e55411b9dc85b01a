"""Reads PyTorch's flight recorder of collectives on the CPU (``KINETO/collectives.json``): their sizes, types and groups.

Kineto's events name such a collective and say how long it took on a thread of the library; they tell its size only where shapes
were recorded, and never its group. The recorder has both, and when the collective was asked for, but not which event it became.
That is worked out here, and a figure is given only where no other assignment is possible:

* An entry of the recorder was made inside the ``c10d::`` call that asked for it; entries in no recorded call have no event.
* A group runs its collectives on threads of its own, which take them in the order in which they were asked for. So the events of
  its threads, in order of start, are its entries in order, but for one case: a thread that has taken one may be held up before
  its event begins, while another thread takes the next. Where that could have happened (another of the group's threads was idle,
  and the next collective had been asked for), only equal sizes are certain.
* Which threads belong to which group follows from names, numbers and times; where that fits several ways, nothing is said.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec
import polars as pl

from steplens.common import rundir
from steplens.common.storage.files import read_bytes
from steplens.readers.common import json_decoder
from steplens.readers.kineto.kineto_collectives import ELEMENT_BYTES, group_sizes, operation_of
from steplens.readers.steplens_run.run_files import collectives_files
from steplens.trace.building.cpu_device import DEFAULT_GROUP
from steplens.trace.schema import COLLECTIVE, NAME
from steplens.trace.trace import Trace

_LIMIT = 64 << 20
_CALL = r"^c10d::"
_EVENT = r"^gloo:"
#: PyTorch's own description of the group that every job has
_DEFAULT = "default_pg"
#: so many ways to give threads to groups are tried
_ASSIGNMENTS = 4096
_MOST_ELEMENTS = 1 << 48
#: they run in the call itself, and the recorder leaves them out
_POINT_TO_POINT = ("send", "recv")


_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class _Recorded(msgspec.Struct):
    """One entry as PyTorch writes it; it has more members."""

    is_p2p: bool
    process_group: tuple[str, str]
    profiling_name: str
    input_sizes: list[list[_Number]]
    input_dtypes: list[str]
    time_created_ns: _Number


class _File(msgspec.Struct):
    entries: list[_Recorded]


_DECODER = json_decoder.Decoder[_File](_File)


@dataclass(frozen=True)
class _Entry:
    operation: str
    group: str
    created_ns: int
    elements: int | None
    dtype: str | None
    ranks: int | None


@dataclass(frozen=True)
class _Event:
    row: int
    operation: str
    thread: int
    start_ns: int
    end_ns: int


def with_sizes(trace: Trace, raw: Path) -> Trace:
    """``trace`` with group, size and type of its ``communication`` (group, ranks, elements, bytes, dtype), if certain.

    What the events themselves tell stays as it is.

    Args:
        trace: of a run that Kineto recorded.
        raw: the folder of its raw data.
    """
    communication = trace.table("communication")
    if communication is None or not collectives_files(raw):
        return trace
    names = pl.col("name").cast(pl.String)
    calls = trace.required("ops").filter(names.str.contains(_CALL)).select(names, "start_ns", "end_ns").collect()
    ranks = {name: size for name, size in group_sizes(trace.meta_values()).items() if size}
    entries = _asked_for(_read_entries(raw / rundir.COLLECTIVES, ranks), list(calls.sort("start_ns").iter_rows()))
    is_collective = pl.col("kind").cast(pl.String) == COLLECTIVE
    rows = communication.with_row_index("_row").filter(names.str.contains(_EVENT) & is_collective)
    rows = rows.drop_nulls(["stream", "end_ns"]).sort("start_ns", "_row")
    events = [
        _Event(row, operation_of(name) or "", thread, start, end)
        for row, name, thread, start, end in rows.select("_row", names, "stream", "start_ns", "end_ns").iter_rows()
    ]
    entry_of_row = dict(_match_entries(events, entries)) if entries else {}
    if not entry_of_row:
        return trace
    return Trace(
        trace.source,
        {**{name: trace.required(name) for name in trace}, "communication": _fill_sizes(communication, entry_of_row)},
    )


def _fill_sizes(communication: pl.DataFrame, found: Mapping[int, _Entry]) -> pl.DataFrame:
    complete = [(row, entry.group, entry.ranks, entry.elements, entry.dtype) for row, entry in found.items()]
    schema = {"_row": pl.UInt32, "_group": pl.String, "_ranks": pl.Int32, "_elements": pl.Int64, "_dtype": pl.String}
    sizes = pl.DataFrame(complete, schema=schema, orient="row")
    element_bytes = pl.col("_dtype").replace_strict(ELEMENT_BYTES, default=None, return_dtype=pl.Int64)
    joined = communication.with_row_index("_row").join(sizes, on="_row", how="left", maintain_order="left")
    return joined.with_columns(
        group=pl.coalesce(pl.col("_group").cast(NAME), "group"),
        ranks=pl.coalesce("_ranks", "ranks"),
        elements=pl.coalesce("elements", "_elements"),
        bytes=pl.coalesce("bytes", pl.col("_elements") * element_bytes),
        dtype=pl.coalesce("dtype", pl.col("_dtype").cast(NAME)),
    ).select(communication.columns)


def _read_entries(path: Path, ranks: Mapping[str, int]) -> list[_Entry]:
    """What the recorder holds, in order of time; nothing of a file that is damaged: an order with gaps is none."""
    try:
        recorded = _DECODER.decode(read_bytes(path)).entries if path.stat().st_size <= _LIMIT else []
    except (OSError, ValueError):
        return []
    entries = []
    for entry in recorded:
        if entry.is_p2p:
            continue
        number, described = entry.process_group
        types = set(entry.input_dtypes)
        entries.append(
            _Entry(
                operation_of(entry.profiling_name) or "",
                DEFAULT_GROUP if described == _DEFAULT else number,
                entry.time_created_ns,
                _count_elements(entry.input_sizes) if len(types) == 1 else None,
                entry.input_dtypes[0] if len(types) == 1 else None,
                ranks.get(number),
            )
        )
    return sorted(entries, key=lambda entry: entry.created_ns)


def _count_elements(sizes: Sequence[Sequence[int]]) -> int | None:
    """How many elements tensors of these sizes have together; None without tensors, and where there can be none so large."""
    total = 0
    for size in sizes:
        product = 1
        for dimension in size:
            product = min(product * dimension, _MOST_ELEMENTS)
        total += product
    return total if sizes and total < _MOST_ELEMENTS else None


def _asked_for(entries: Sequence[_Entry], calls: Sequence[tuple[str, int, int]]) -> list[_Entry]:
    """The entries that recorded calls made; none at all where one call has two, or a call whose entry was overwritten."""
    entries_asked: list[_Entry] = []
    times = [entry.created_ns for entry in entries]
    for name, start, end in calls:
        operation = operation_of(name)
        if operation in _POINT_TO_POINT:
            continue
        entries_inside = entries[bisect_left(times, start) : bisect_right(times, end)]
        if len(entries_inside) != 1 or entries_inside[0].operation != operation:
            # which events are missing an entry is not known, so neither is which have one
            return []
        entries_asked.append(entries_inside[0])
    return entries_asked if len({id(entry) for entry in entries_asked}) == len(entries_asked) else []


def _match_entries(events: Sequence[_Event], entries: Sequence[_Entry]) -> Iterator[tuple[int, _Entry]]:
    """The row of each event whose entry is known, and that entry."""
    groups: dict[str, list[_Entry]] = defaultdict(list)
    for entry in entries:
        groups[entry.group].append(entry)
    threads = sorted({event.thread for event in events})
    if len(groups) ** len(threads) > _ASSIGNMENTS:
        return
    fitting = []
    for owners in itertools.product(groups, repeat=len(threads)):
        owner = dict(zip(threads, owners, strict=True))
        lanes = {name: [event for event in events if owner[event.thread] == name] for name in groups}
        if all(_can_match(lanes[name], groups[name]) for name in groups):
            fitting.append(lanes)
    if len(fitting) != 1:
        return
    for name, lane in fitting[0].items():
        yield from _of_group(lane, groups[name])


def _can_match(events: Sequence[_Event], entries: Sequence[_Entry]) -> bool:
    return len(events) == len(entries) and all(
        event.operation == entry.operation and entry.created_ns <= event.start_ns
        for event, entry in zip(events, entries, strict=True)
    )


def _of_group(events: Sequence[_Event], entries: Sequence[_Entry]) -> Iterator[tuple[int, _Entry]]:
    """Events and entries of one group, pair by pair; without a size where it may be that of another pair."""
    begin = 0
    for place in range(len(events)):
        if place + 1 < len(events) and _may_be_swapped(events, entries, place):
            continue
        sizes: dict[str, set[tuple[int | None, str | None]]] = defaultdict(set)
        for entry in entries[begin : place + 1]:
            sizes[entry.operation].add((entry.elements, entry.dtype))
        for event, entry in zip(events[begin : place + 1], entries[begin : place + 1], strict=True):
            certain = len(sizes[entry.operation]) == 1
            yield event.row, entry if certain else replace(entry, elements=None, dtype=None)
        begin = place + 1


def _may_be_swapped(events: Sequence[_Event], entries: Sequence[_Entry], place: int) -> bool:
    """Whether the event at ``place`` and later ones may be each other's entries; see the module."""
    if entries[place + 1].created_ns > events[place].start_ns:
        return False
    begin = events[place].start_ns
    later = {event.thread for event in events[place + 1 :]} - {events[place].thread}
    busy = {event.thread for event in events[:place] if event.end_ns > begin}
    return bool(later - busy)
