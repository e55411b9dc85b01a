"""Which tables of a trace become lanes of the timeline, and how: one visible list."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from steplens.analysis.steps.device_work import device_parts
from steplens.analysis.tools.names import of_calls, with_prefix
from steplens.analysis.tools.overlap import Intervals
from steplens.trace.building.devices import cpu_is_device, device_kind
from steplens.trace.trace import Trace

Key = Mapping[str, Any]

#: a name of a thread that says no more than its number
_NUMBER_ALONE = re.compile(r"[Tt]hread \d+\s*$")
#: how the calls begin that autograd's threads make for each node of a backward pass
_BACKWARD_NODE = "autograd::engine::evaluate_function"

HOST, DEVICE, PROGRAM = "host", "device", "program"


class Labels:
    """What threads and devices of a trace are called."""

    def __init__(self, trace: Trace) -> None:
        rows = trace.required("threads").select("pid", "tid", "name").collect()
        self._threads: dict[tuple[int, int], str] = {
            (pid, tid): name for pid, tid, name in rows.iter_rows() if name and not _NUMBER_ALONE.match(name)
        }
        self._kind = device_kind(trace)
        self._trace = trace

    @functools.cached_property
    def _work(self) -> dict[tuple[int, int], str]:
        """What the threads do that have no name, as far as what they ran says it."""
        work: dict[tuple[int, int], str] = {}
        queue = self._trace.lazy("task_queue")
        if queue is not None:
            work |= dict.fromkeys(queue.select("pid", "dequeue_tid").unique().collect().drop_nulls().iter_rows(), "task queue")
        training = self._trace.required("steps").select("pid", "tid").unique().collect().drop_nulls()
        nodes = with_prefix(of_calls(self._trace), _BACKWARD_NODE)
        if nodes and training.height:
            calls = self._trace.required("ops").filter(pl.col("name").is_in(nodes))
            work |= dict.fromkeys(calls.select("pid", "tid").unique().collect().iter_rows(), "autograd")
        # the thread of the steps goes backward itself where there is no device
        return work | dict.fromkeys(training.iter_rows(), "training")

    def thread(self, key: Key) -> str:
        """The thread of a lane, with its name where it has one, or else what it does."""
        thread = key["pid"], key["tid"]
        name = self._threads.get(thread)
        if key["tid"] <= 0:
            # a number that a reader or a wrapped 32 bits made, which nobody finds again
            return name or "thread"
        # the main thread of a process is told by its number
        if name is None and key["pid"] != key["tid"]:
            name = self._work.get(thread)
        if name and str(key["tid"]) in name:
            return name
        return f"thread {key['tid']} ({name})" if name else f"thread {key['tid']}"

    def marks(self, key: Key) -> str:
        """Marks of a thread, or of a stream where they were recorded on the device."""
        place = _with_number("stream", key["stream"]) if key["tid"] is None else self.thread(key)
        return f"marks of {place}" + (f", domain {key['domain']}" if key["domain"] else "")

    def stream(self, key: Key) -> str:
        """The stream of a lane."""
        return f"{self._kind} {_value_or_default(key['device'], 0)} {_with_number('stream', key['stream'])}"


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


def _table_lanes(
    id: str,
    group: str,
    keys: tuple[str, ...],
    label: Callable[[Key, Labels], str],
    *,
    table: str = "",
    name: pl.Expr | None = None,
    depth: bool = False,
) -> LaneSource:
    """The rows of a table, by default of the name of the lanes. What the CPU computes and communicates are operator calls, which
    lie on their threads: it has no lanes of a device.
    """
    table = table or id

    def read_events(trace: Trace) -> pl.LazyFrame | None:
        rows = None if group == DEVICE and cpu_is_device(trace) else trace.lazy(table)
        if rows is None:
            return None
        event_name = pl.col("name") if name is None else name.alias("name")
        return rows.select("start_ns", "end_ns", event_name, *keys, *(["depth"] if depth else []))

    return LaneSource(id, table, group, keys, read_events, label)


def _events_of_queue(end: str) -> Callable[[Trace], pl.LazyFrame | None]:
    def read_events(trace: Trace) -> pl.LazyFrame | None:
        rows = trace.lazy("task_queue")
        times = {"start_ns": f"{end}_start_ns", "end_ns": f"{end}_end_ns", "tid": f"{end}_tid"}
        return None if rows is None else rows.select("name", "pid", **{name: pl.col(column) for name, column in times.items()})

    return read_events


def _queue_label(end: str) -> Callable[[Key, Labels], str]:
    return lambda key, labels: f"{end}, {labels.thread(key)}"


def _batch_events(trace: Trace) -> pl.LazyFrame | None:
    """Batches at a place; drawn as long as they took, and at least as moments.

    The time of one that the host hands on is when that was done, of one that the device receives when it asked for it.
    """
    rows = trace.lazy("pipeline_batches")
    if rows is None:
        return None
    is_received = pl.col("kind").cast(pl.String) == "receive"
    before = pl.when(~is_received).then("total_ns").fill_null(0)
    behind = pl.when(is_received).then("wait_ns").fill_null(0)
    name = pl.format("batch {}", "batch").cast(pl.Categorical())
    time = pl.col("time_ns")
    return rows.select(start_ns=time - before, end_ns=time + behind, name=name, kind="kind")


#: place and name of a stage, and its ends in ``pipeline_tasks``
_STAGES = (
    ("worker", "fetch", "start_ns", "collate_ns"),
    ("worker", "collate", "collate_ns", "end_ns"),
    ("worker", "pickle", "pickle_start_ns", "pickle_end_ns"),
    ("loop", "next batch", "next_start_ns", "next_end_ns"),
)


def _loader_stages(trace: Trace) -> pl.LazyFrame | None:
    """The stages of every batch of a DataLoader: those of its workers, and what the loop waits for."""
    rows = trace.lazy("pipeline_tasks")
    if rows is None:
        return None
    parts = []
    for place, stage, start, end in _STAGES:
        worker = pl.col("worker") if place == "worker" else pl.lit(None, dtype=pl.Int32)
        name = pl.lit(stage).cast(pl.Categorical())
        staged = rows.with_row_index("table_row").drop_nulls([start, end])
        worker_and_name = (worker.alias("worker"), name.alias("name"), pl.lit(place).alias("place"))
        parts.append(staged.select("table_row", "loader", *worker_and_name, start_ns=start, end_ns=end))
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


def _with_number(what: str, number: Any) -> str:
    """A stream or group by its number, where the source says it."""
    return f"{what} of unknown number" if number is None else f"{what} {number}"


def _value_or_default(value: Any, other: Any) -> Any:
    return other if value is None else value


def _loader_place_label(key: Key) -> str:
    if key["place"] == "loop":
        return "what the loop waits for"
    return "training process" if key["worker"] is None else f"worker {key['worker']}"


_STEP = pl.format("step {}", pl.col("id")).cast(pl.Categorical())
_COLLECTION = pl.format("generation {}", pl.col("generation")).cast(pl.Categorical())

_THREAD = ("pid", "tid")

SOURCES: tuple[LaneSource, ...] = (
    _table_lanes("steps", PROGRAM, (), lambda key, labels: "steps", name=_STEP),
    LaneSource("device_states", "", PROGRAM, ("state",), _device_states, lambda key, labels: f"device: {key['state']}"),
    LaneSource(
        "batches", "pipeline_batches", PROGRAM, ("kind",), _batch_events, lambda key, labels: f"data pipeline: {key['kind']}"
    ),
    LaneSource(
        "loader", "pipeline_tasks", PROGRAM, ("loader", "place", "worker"), _loader_stages,
        lambda key, labels: f"data loader {key['loader']}: {_loader_place_label(key)}",
    ),
    _table_lanes(
        "marks", HOST, ("domain", *_THREAD, "stream"), lambda key, labels: labels.marks(key), name=pl.col("message")
    ),
    _table_lanes("operators", HOST, _THREAD, lambda key, labels: labels.thread(key), table="ops", depth=True),
    _table_lanes("python", HOST, _THREAD, lambda key, labels: f"Python, {labels.thread(key)}"),
    _table_lanes(
        "runtime", HOST, ("layer", *_THREAD), table="api",
        label=lambda key, labels: f"{_value_or_default(key['layer'], 'runtime')}, {labels.thread(key)}",
    ),
    *(
        LaneSource(end, "task_queue", HOST, _THREAD, _events_of_queue(end), _queue_label(end))
        for end in ("enqueue", "dequeue")
    ),
    _table_lanes("gc", HOST, _THREAD, lambda key, labels: f"garbage collection, {labels.thread(key)}", name=_COLLECTION),
    _table_lanes("kernels", DEVICE, ("device", "stream"), lambda key, labels: labels.stream(key)),
    _table_lanes(
        "communication", DEVICE, ("device", "group"),
        lambda key, labels: f"communication, {_with_number('group', key['group'])}",
    ),
)  # fmt: skip

#: those whose events were recorded, not worked out of all others: what a draft of some events can show
RECORDED: tuple[LaneSource, ...] = tuple(source for source in SOURCES if source.table)
