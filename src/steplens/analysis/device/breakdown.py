"""How the time line of a device divides: idle, computing, communicating, copying, and what of it happens at once."""

from __future__ import annotations

import itertools

import polars as pl

from steplens.analysis.steps.given_steps import given_steps
from steplens.analysis.tools.once import once_per_trace
from steplens.analysis.tools.overlap import Intervals, intersect, merged, subtract
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COMPUTE, KIND_COPY
from steplens.trace.trace import Trace

#: the kinds of task that occupy a device; what only waits (KIND_OTHER) does not
BUSY_KINDS = (KIND_COMPUTE, KIND_COMMUNICATION, KIND_COPY)

#: a gap in front of a task that had been launched before it and is shorter than this is the device's own launch overhead
SHORT_GAP_NS = 30_000

HOST_WAIT = "host_wait"
KERNEL_WAIT = "kernel_wait"
OTHER_WAIT = "other"

_TEMPORAL = table_schema(
    "device: Int32, total_ns, idle_ns, compute_ns, non_compute_ns, idle_percent: Float64, compute_percent: Float64, "
    "non_compute_percent: Float64"
)
_OVERLAP = table_schema("device: Int32, communication_ns, overlapped_ns, overlap_percent: Float64")
_KINDS = table_schema("kinds: String, time_ns, percent: Float64")
_IDLE = table_schema("device: Int32, stream, cause: String, gaps, idle_ns, idle_percent: Float64")


def temporal_breakdown(trace: Trace, *, per_device: bool = False) -> pl.DataFrame:
    """The time of the device from its first to its last task: computing, busy with something else, or idle.

    With C the union of the computing tasks and B the union of all computing, communicating and copying tasks, over all
    streams, in ns of the device clock:

    * ``total_ns`` = end of the last task - start of the first,
    * ``compute_ns`` = |C|, ``non_compute_ns`` = |B outside C|, ``idle_ns`` = total - |B|.

    The three add up to the total; the percentages are shares of it. Source: the ``kernels`` and ``communication`` tables. Of a
    rank of which only results are there: Computing, Communication(Not Overlapped) and Free, summed over its steps.

    Args:
        trace: one rank.
        per_device: one row per device; else one row for all devices of the process together (``device`` null).

    Returns:
        the columns above, no row where there is no task.
    """
    rows = []
    if trace.is_results_only:
        return _given_breakdown(trace)
    for device, tasks in _tasks_by_device(_read_busy_work(trace), per_device):
        compute, busy = _merge_kind(tasks, KIND_COMPUTE), _merge_kind(tasks)
        total = int(tasks["end_ns"].max()) - int(tasks["start_ns"].min())  # type: ignore[arg-type]
        idle, non_compute = total - busy.length_ns, busy.length_ns - compute.length_ns
        parts = (idle, compute.length_ns, non_compute)
        rows.append((device, total, *parts, *(_percent_of(part, total) for part in parts)))
    return pl.DataFrame(rows, schema=_TEMPORAL, orient="row")


def _given_breakdown(trace: Trace) -> pl.DataFrame:
    steps = given_steps(trace).select("computing_ns", "communication_not_overlapped_ns", "free_ns").drop_nulls()
    if not steps.height:
        return pl.DataFrame(schema=_TEMPORAL)
    compute, non_compute, idle = (int(total) for total in steps.sum().row(0))
    total = compute + non_compute + idle
    parts = (idle, compute, non_compute)
    return pl.DataFrame([(None, total, *parts, *(_percent_of(part, total) for part in parts))], schema=_TEMPORAL, orient="row")


def communication_overlap(trace: Trace, *, per_device: bool = False) -> pl.DataFrame:
    """How much of the communication happens while the device computes: its exposed rest is what costs time.

    With C and M the unions of the computing and communicating tasks over all streams: ``communication_ns`` = |M|,
    ``overlapped_ns`` = |C and M|, ``overlap_percent`` = their ratio, null where nothing communicates. In ns of the device
    clock. Source: the ``kernels`` table, and ``communication`` where that is no device task, as on a CPU.

    Args:
        trace: one rank.
        per_device: one row per device; else one row for all devices of the process together (``device`` null).
    """
    return overlap_of_devices(trace) if per_device else _overlap_of(trace, per_device=False)


@once_per_trace
def overlap_of_devices(trace: Trace) -> pl.DataFrame:
    """``communication_overlap`` of each device."""
    return _overlap_of(trace, per_device=True)


def _overlap_of(trace: Trace, *, per_device: bool) -> pl.DataFrame:
    rows = []
    for device, tasks in _tasks_by_device(_read_busy_work(trace), per_device):
        communication = _merge_kind(tasks, KIND_COMMUNICATION)
        overlapped = intersect(communication, _merge_kind(tasks, KIND_COMPUTE)).length_ns
        communication_ns = communication.length_ns
        rows.append(
            (device, communication_ns, overlapped, _percent_of(overlapped, communication_ns) if communication_ns else None)
        )
    return pl.DataFrame(rows, schema=_OVERLAP, orient="row")


def kind_breakdown(trace: Trace, kinds: tuple[str, ...] = BUSY_KINDS) -> pl.DataFrame:
    """Time during which exactly these kinds of task run at once, longest first.

    The time line of the device is cut wherever a kind begins or ends to run on any stream; ``time_ns`` is the sum of the
    parts in which all kinds named in ``kinds`` (joined by " + ") run and no other one does. So rows never overlap, and add
    up to the time in which any of them runs. Source: the ``kernels`` and ``communication`` tables, ns of the device clock.

    Args:
        trace: one rank; its devices are taken together.
        kinds: the kinds to tell apart; tasks of other kinds are as if they were not there.

    Returns:
        kinds, time_ns, percent (share of the sum); only what occurs.
    """
    tasks = _read_busy_work(trace)
    running = {kind: _merge_kind(tasks, kind) for kind in kinds}
    rows = []
    for count in range(len(kinds), 0, -1):
        for together in itertools.combinations(kinds, count):
            part: Intervals | None = None
            for kind in together:
                part = running[kind] if part is None else intersect(part, running[kind])
            for kind in set(kinds) - set(together):
                part = subtract(part, running[kind]) if part is not None else part
            if part is not None and part.length_ns:
                rows.append((" + ".join(together), part.length_ns))
    total = sum(time for _, time in rows)
    rows.sort(key=lambda row: (-row[1], row[0]))
    return pl.DataFrame([(name, time, _percent_of(time, total)) for name, time in rows], schema=_KINDS, orient="row")


def idle_breakdown(trace: Trace, *, short_gap_ns: int = SHORT_GAP_NS) -> pl.DataFrame:
    """Why each stream was idle between two of its tasks.

    A gap lies between the latest end of a stream's tasks so far and the start of its next task. Its ``cause`` is

    * ``host_wait``: that task was launched only after the gap began: the host was late;
    * ``kernel_wait``: it was launched before, and the gap is shorter than ``short_gap_ns``: the usual cost between tasks;
    * ``other``: it was launched before, and the gap is longer: the task waited for another stream or a dependency. Gaps in
      front of tasks whose launch is unknown count here.

    Source: the ``kernels`` table (``start_ns``, ``end_ns``, ``launch_ns``), times in ns. Comparing host with device times
    needs a common clock; health reports where it is off.

    Returns:
        device, stream, cause, gaps (number), idle_ns, idle_percent (share of the stream's idle time); sorted.
    """
    tasks = _read_busy_tasks(trace).sort("device", "stream", "start_ns")
    lane = ["device", "stream"]
    gaps = (
        tasks.with_columns(until=pl.col("end_ns").cum_max().shift().over(lane))
        .with_columns(gap=pl.col("start_ns") - pl.col("until"))
        .filter(pl.col("gap") > 0)
        .with_columns(
            cause=pl.when(pl.col("launch_ns") > pl.col("until"))
            .then(pl.lit(HOST_WAIT))
            .when(pl.col("launch_ns").is_not_null() & (pl.col("gap") < short_gap_ns))
            .then(pl.lit(KERNEL_WAIT))
            .otherwise(pl.lit(OTHER_WAIT))
        )
    )
    return (
        gaps.group_by(*lane, "cause")
        .agg(gaps=pl.len().cast(pl.Int64), idle_ns=pl.col("gap").sum())
        .with_columns(idle_percent=pl.col("idle_ns") * 100 / pl.col("idle_ns").sum().over(lane))
        .sort(*lane, "cause")
        .select(cast_columns(_IDLE))
    )


def _read_busy_work(trace: Trace) -> pl.DataFrame:
    """What occupies a device: its tasks, and communication that is no task, as that of a CPU."""
    tasks = _read_busy_tasks(trace)
    if (tasks["kind"] == KIND_COMMUNICATION).any():
        return tasks
    operations = trace.required("communication").select("device", "stream", "start_ns", "end_ns", "launch_ns")
    return pl.concat([tasks, operations.with_columns(kind=pl.lit(KIND_COMMUNICATION)).collect()])


def _read_busy_tasks(trace: Trace) -> pl.DataFrame:
    """The tasks that occupy a device."""
    kind = pl.col("kind").cast(pl.String)
    tasks = trace.required("kernels").select("device", "stream", "start_ns", "end_ns", "launch_ns", kind=kind)
    return tasks.filter(pl.col("kind").is_in(BUSY_KINDS)).collect()


def _tasks_by_device(tasks: pl.DataFrame, per_device: bool) -> list[tuple[int | None, pl.DataFrame]]:
    if not tasks.height:
        return []
    if not per_device:
        return [(None, tasks)]
    return [(group["device"][0], group) for group in tasks.sort("device").partition_by("device", maintain_order=True)]


def _merge_kind(tasks: pl.DataFrame, kind: str | None = None) -> Intervals:
    tasks_of_kind = tasks if kind is None else tasks.filter(pl.col("kind") == kind)
    return merged(tasks_of_kind)


def _percent_of(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
