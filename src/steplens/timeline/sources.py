"""Which tables of a trace become lanes of the timeline, and how: one visible list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from steplens.analysis.steps.device_work import device_parts
from steplens.analysis.tools.overlap import Intervals
from steplens.trace.building.devices import cpu_is_device, device_kind
from steplens.trace.trace import Trace

Key = Mapping[str, Any]

HOST, DEVICE, PROGRAM = "host", "device", "program"


class Labels:
    """What threads and devices of a trace are called."""

    def __init__(self, trace: Trace) -> None:
        rows = trace.required("threads").select("pid", "tid", "name").collect()
        self._threads: dict[tuple[int, int], str] = {(pid, tid): name for pid, tid, name in rows.iter_rows() if name}
        self._kind = device_kind(trace)

    def thread(self, key: Key) -> str:
        """The thread of a lane, with its name where it has one."""
        name = self._threads.get((key["pid"], key["tid"]))
        if name and str(key["tid"]) in name:
            return name
        return f"thread {key['tid']} ({name})" if name else f"thread {key['tid']}"

    def marks(self, key: Key) -> str:
        """Marks of a thread, or of a stream where they were recorded on the device."""
        place = f"stream {_value_or_default(key['stream'], '?')}" if key["tid"] is None else self.thread(key)
        return f"marks of {place}" + (f", domain {key['domain']}" if key["domain"] else "")

    def stream(self, key: Key) -> str:
        """The stream of a lane."""
        return f"{self._kind} {_value_or_default(key['device'], 0)} stream {_value_or_default(key['stream'], '?')}"


@dataclass(frozen=True)
class LaneSource:
    """One kind of lane.

    Attributes:
        id: stable name, such as ``operators``.
        table: whose rows its events are; empty where they are derived from several.
        group: what the lanes belong to: "program" (the whole process), "host" (threads) or "device" (streams).
        keys: columns that tell lanes apart.
        events: start_ns, end_ns, name (Categorical), the keys, and ``depth`` where the table knows it; rows as in the table, or
            with ``table_row``.
        label: what a lane is called, given its key.
    """

    id: str
    table: str
    group: str
    keys: tuple[str, ...]
    events: Callable[[Trace], pl.LazyFrame | None]
    label: Callable[[Key, Labels], str]


def _events_of_table(
    table: str, *keys: str, name: pl.Expr | None = None, depth: bool = False
) -> Callable[[Trace], pl.LazyFrame | None]:
    def read_events(trace: Trace) -> pl.LazyFrame | None:
        rows = trace.lazy(table)
        if rows is None:
            return None
        event_name = (pl.col("name") if name is None else name).alias("name")
        return rows.select("start_ns", "end_ns", event_name, *keys, *(["depth"] if depth else []))

    return read_events


def _of_device(table: str, *keys: str) -> Callable[[Trace], pl.LazyFrame | None]:
    """Rows of an accelerator. What the CPU computes and communicates are operator calls, which lie on their threads."""
    rows = _events_of_table(table, *keys)
    return lambda trace: None if cpu_is_device(trace) else rows(trace)


def _events_of_queue(end: str) -> Callable[[Trace], pl.LazyFrame | None]:
    def read_events(trace: Trace) -> pl.LazyFrame | None:
        rows = trace.lazy("task_queue")
        times = {"start_ns": f"{end}_start_ns", "end_ns": f"{end}_end_ns", "tid": f"{end}_tid"}
        return None if rows is None else rows.select("name", "pid", **{name: pl.col(column) for name, column in times.items()})

    return read_events


def _batch_events(trace: Trace) -> pl.LazyFrame | None:
    """Batches at a place; drawn as long as they took, and at least as moments."""
    rows = trace.lazy("pipeline_batches")
    if rows is None:
        return None
    length = pl.coalesce("total_ns", "wait_ns", pl.lit(0))
    name = pl.format("batch {}", "batch").cast(pl.Categorical())
    return rows.select(start_ns="time_ns", end_ns=pl.col("time_ns") + length, name=name, kind="kind")


#: place -> stage -> its ends in ``pipeline_tasks``
_STAGES = {
    "worker": {
        "fetch": ("start_ns", "collate_ns"),
        "collate": ("collate_ns", "end_ns"),
        "pickle": ("pickle_start_ns", "pickle_end_ns"),
    },
    "loop": {"next batch": ("next_start_ns", "next_end_ns")},
}


def _loader_stages(trace: Trace) -> pl.LazyFrame | None:
    """The stages of every batch of a DataLoader: those of its workers, and what the loop waits for."""
    rows = trace.lazy("pipeline_tasks")
    if rows is None:
        return None
    numbered = rows.with_row_index("table_row")
    parts = []
    for place, stages in _STAGES.items():
        for stage, (start, end) in stages.items():
            worker = pl.col("worker") if place == "worker" else pl.lit(None, dtype=pl.Int32)
            parts.append(
                numbered.filter(pl.col(start).is_not_null() & pl.col(end).is_not_null()).select(
                    "table_row",
                    "loader",
                    worker.alias("worker"),
                    start_ns=start,
                    end_ns=end,
                    name=pl.lit(stage).cast(pl.Categorical()),
                    place=pl.lit(place),
                )
            )
    return pl.concat(parts)


def _device_states(trace: Trace) -> pl.LazyFrame | None:
    """What the device does, all streams together; the parts of the device period, and beside them overlapped communication."""
    if "kernels" not in trace and "communication" not in trace:
        return None
    parts = device_parts(trace)
    busy = parts.busy
    lanes = {
        "computing": parts.computing,
        "exposed communication": parts.communication,
        "overlapped communication": parts.overlapped,
        "exposed copies": parts.copy,
        "idle": Intervals(busy.end[:-1], busy.start[1:]),
    }
    frames = [
        pl.DataFrame({"start_ns": spans.start, "end_ns": spans.end}).with_columns(state=pl.lit(state))
        for state, spans in lanes.items()
        if len(spans.start)
    ]
    if not frames:
        return None
    return pl.concat(frames).lazy().with_columns(name=pl.col("state").cast(pl.Categorical()))


def _value_or_default(value: Any, other: Any) -> Any:
    return other if value is None else value


def _loader_place_label(key: Key) -> str:
    if key["place"] == "loop":
        return "what the loop waits for"
    return "training process" if key["worker"] is None else f"worker {key['worker']}"


_STEP = pl.format("step {}", pl.col("id")).cast(pl.Categorical())
_COLLECTION = pl.format("generation {}", pl.col("generation")).cast(pl.Categorical())

SOURCES: tuple[LaneSource, ...] = (
    LaneSource("steps", "steps", PROGRAM, (), _events_of_table("steps", name=_STEP), lambda key, labels: "steps"),
    LaneSource("device_states", "", PROGRAM, ("state",), _device_states, lambda key, labels: f"device: {key['state']}"),
    LaneSource(
        "batches", "pipeline_batches", PROGRAM, ("kind",), _batch_events, lambda key, labels: f"data pipeline: {key['kind']}"
    ),
    LaneSource(
        "loader",
        "pipeline_tasks",
        PROGRAM,
        ("loader", "place", "worker"),
        _loader_stages,
        lambda key, labels: f"data loader {key['loader']}: {_loader_place_label(key)}",
    ),
    LaneSource(
        "marks",
        "marks",
        HOST,
        ("domain", "pid", "tid", "stream"),
        _events_of_table("marks", "domain", "pid", "tid", "stream", name=pl.col("message")),
        lambda key, labels: labels.marks(key),
    ),
    LaneSource(
        "operators",
        "ops",
        HOST,
        ("pid", "tid"),
        _events_of_table("ops", "pid", "tid", depth=True),
        lambda key, labels: labels.thread(key),
    ),
    LaneSource(
        "python",
        "python",
        HOST,
        ("pid", "tid"),
        _events_of_table("python", "pid", "tid"),
        lambda key, labels: f"Python, {labels.thread(key)}",
    ),
    LaneSource(
        "runtime",
        "api",
        HOST,
        ("layer", "pid", "tid"),
        _events_of_table("api", "layer", "pid", "tid"),
        lambda key, labels: f"{_value_or_default(key['layer'], 'runtime')}, {labels.thread(key)}",
    ),
    LaneSource(
        "enqueue",
        "task_queue",
        HOST,
        ("pid", "tid"),
        _events_of_queue("enqueue"),
        lambda key, labels: f"enqueue, {labels.thread(key)}",
    ),
    LaneSource(
        "dequeue",
        "task_queue",
        HOST,
        ("pid", "tid"),
        _events_of_queue("dequeue"),
        lambda key, labels: f"dequeue, {labels.thread(key)}",
    ),
    LaneSource(
        "gc",
        "gc",
        HOST,
        ("pid", "tid"),
        _events_of_table("gc", "pid", "tid", name=_COLLECTION),
        lambda key, labels: f"garbage collection, {labels.thread(key)}",
    ),
    LaneSource(
        "kernels",
        "kernels",
        DEVICE,
        ("device", "stream"),
        _of_device("kernels", "device", "stream"),
        lambda key, labels: labels.stream(key),
    ),
    LaneSource(
        "communication",
        "communication",
        DEVICE,
        ("device", "group"),
        _of_device("communication", "device", "group"),
        lambda key, labels: f"communication, group {_value_or_default(key['group'], '?')}",
    ),
)

#: those whose events were recorded, not worked out of all others: what a draft of some events can show
RECORDED: tuple[LaneSource, ...] = tuple(source for source in SOURCES if source.table)
