"""``cpu_timeline_display_<rank>.json`` and its summary: launches, scopes and steps as Chrome trace events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.formats.ascend_results import TIME_BASE_KEY
from steplens.writers.common.output import Output
from steplens.writers.common.rows import shared_texts, write_rows
from steplens.writers.common.text import distinct_texts, json_string, microseconds, write_json
from steplens.writers.mindspore.mindspore_operators import recorded_launches

#: lanes, as MindSpore numbers them
_STEPS, _SCOPES = 100000, 100001
_STEP_NAME, _SCOPE_NAME = "Steps", "Scope Layer"
_MB = 1 << 20
#: what an event takes beside its name and its arguments, at most: keys, and numbers of up to 20 digits
_FIXED_BYTES = 140
#: metadata events before the others
_HEAD_BYTES = 2000

#: events: name and arguments as JSON text, ns
_EVENTS = {"name": pl.Categorical, "lane": pl.Int64, "start_ns": pl.Int64, "length": pl.Int64, "args": pl.Categorical}


def write_timeline(output: Output, path: Path, limit_mb: int | None = None) -> None:
    """Write cpu_timeline_display_<rank>.json.

    With a limit (MB) to its size the events that start latest are left out, and the file says how many.
    """
    rows = recorded_launches(output.trace)
    borders = output.trace.required("steps").sort("start_ns").select("id", "start_ns", "end_ns").collect()
    parts = [
        part.select(pl.col(name).cast(dtype) for name, dtype in _EVENTS.items())
        for part in (_launch_events(rows), _step_events(borders), _scope_events(rows, borders["start_ns"].to_numpy()))
    ]
    dropped = 0
    if limit_mb is not None:
        events = pl.concat(parts).sort("start_ns", "length", descending=[False, True], maintain_order=True)
        parts = [_events_within_size(events, limit_mb * _MB - _HEAD_BYTES)]
        dropped = events.height - parts[0].height
    lanes = rows["worker"].unique().sort().to_list()
    with path.open("wb") as handle:
        head = _metadata_events(lanes, output.base_ns, dropped)
        handle.write(b"[" + ",".join(json.dumps(event, ensure_ascii=False) for event in head).encode())
        for part in parts:
            _write_events(handle, part, output.base_ns)
        handle.write(b"]")


def write_summary(output: Output, path: Path) -> None:
    """Write cpu_timeline_summary_<rank>.json; ``total_time`` is the sum of all launches, ms."""
    rows = recorded_launches(output.trace)
    names, _ = distinct_texts(rows["name"])
    summary = {
        "total_time": int(rows["length"].sum()) / 1e6,
        "num_of_streams": rows["worker"].n_unique(),
        "num_of_ops": len(names),
        "op_exe_times": rows.height,
        "max_scope_name_num": max(name.count("/") for name in names),
    }
    write_json(summary, path)


def _write_events(handle: IO[bytes], events: pl.DataFrame, base_ns: int) -> None:
    write_rows(
        handle,
        events,
        ',{"ph":"X","pid":0,"name":',
        pl.col("name"),
        ("tid", pl.col("lane")),
        ("ts", microseconds(pl.col("start_ns") - base_ns)),
        ("dur", microseconds(pl.col("length"))),
        pl.col("args"),
    )


def _events_within_size(events: pl.DataFrame, room: int) -> pl.DataFrame:
    """The first events that surely fit into so many bytes."""
    size = pl.col("name").cat.len_bytes() + pl.col("args").cat.len_bytes() + _FIXED_BYTES
    return events.filter(size.cast(pl.Int64).cum_sum() <= room)


def _metadata_events(workers: list[int], base_ns: int, dropped: int) -> Iterator[dict[str, Any]]:
    base: dict[str, Any] = {TIME_BASE_KEY: base_ns}
    if dropped:
        base["dropped_events"] = dropped
    yield {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "CPU OP", **base}}
    lanes = [(worker, f"HostCpuOps{worker}") for worker in workers]
    for tid, name in (*lanes, (_STEPS, _STEP_NAME), (_SCOPES, _SCOPE_NAME)):
        yield {"name": "thread_name", "ph": "M", "pid": 0, "tid": tid, "args": {"name": name}}


def _launch_events(rows: pl.DataFrame) -> pl.DataFrame:
    args = shared_texts(rows["name"], lambda name: f',"args":{{"type":"HostCpuOps","fullname":{json_string(name)}}}}}')
    name = shared_texts(rows["short"], json_string)
    return rows.select("start_ns", "length", name=name.column(pl.Categorical), lane="worker", args=args.column(pl.Categorical))


def _step_events(borders: pl.DataFrame) -> pl.DataFrame:
    return borders.select(
        "start_ns",
        name=pl.format('"{}"', "id"),
        lane=pl.lit(_STEPS),
        length=pl.col("end_ns") - pl.col("start_ns"),
        args=pl.lit("}"),
    )


def _scope_events(rows: pl.DataFrame, borders: npt.NDArray[np.int64]) -> pl.DataFrame:
    """Neighbouring launches of one scope of one step as one event per level of the scope's name."""
    names, index = distinct_texts(rows["name"])
    starts = rows["start_ns"].to_numpy()
    ends = starts + rows["length"].to_numpy()
    steps = np.searchsorted(borders, starts, side="right")
    #: (scope above, own part of its name) -> number of the scope
    scopes: dict[tuple[int, str], int] = {}
    upper = np.full(len(names), -1, dtype=np.int64)
    parts = [name.split("/")[:-1] for name in names]
    launched = np.arange(len(index))
    events = []
    for level in range(max(map(len, parts), default=0)):
        deep = np.array([len(path) > level for path in parts])
        for number in np.flatnonzero(deep):
            upper[number] = scopes.setdefault((int(upper[number]), parts[number][level]), len(scopes))
        launched = launched[deep[index[launched]]]
        scope = upper[index[launched]]
        step = steps[launched]
        same = (np.diff(scope) == 0) & (np.diff(launched) == 1) & (np.diff(step) == 0)
        first = np.concatenate([[0], np.flatnonzero(~same) + 1])
        events.append(
            pl.DataFrame(
                {
                    "scope": scope[first],
                    "start_ns": starts[launched[first]],
                    "end_ns": np.maximum.reduceat(ends[launched], first),
                    "args": pl.repeat(f',"args":{{"scope_level":{level}}}}}', len(first), dtype=pl.Categorical, eager=True),
                }
            )
        )
    if not events:
        return pl.DataFrame(schema=_EVENTS)
    texts = pl.Series([json_string(part) for _, part in scopes], dtype=pl.Categorical)
    table = pl.concat(events)
    return table.select(
        "start_ns", "args", name=texts.gather(table["scope"]), lane=pl.lit(_SCOPES), length=pl.col("end_ns") - pl.col("start_ns")
    )
