"""Every table that the web UI can show, sort, filter and export: one visible list.

A table is a line of ``_ANALYSES``, an analysis of one trace (shown for one rank, or for all with the columns ``trace`` and
``rank``) or of the whole run; or one of ``analysis.catalogue``, which the command line shows as well; or a recorded table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import polars as pl

from steplens.analysis.catalogue import ANALYSES, Analysis
from steplens.analysis.cluster.arrivals import arrivals, hold_ups
from steplens.analysis.cluster.communication import communication_bandwidth, communication_matrix, communication_times
from steplens.analysis.data_loading import loaders
from steplens.analysis.data_loading.data_pipeline import operations
from steplens.analysis.device.api import api_statistic
from steplens.analysis.device.breakdown import communication_overlap, idle_breakdown, kind_breakdown, temporal_breakdown
from steplens.analysis.device.idle import idle_causes
from steplens.analysis.device.kernels import kernel_statistics, op_statistic
from steplens.analysis.device.queue import launch_statistics, launches, queue_summary
from steplens.analysis.memory.memory import memory_summary, operator_memory
from steplens.analysis.operators.operator_tables import stored_table
from steplens.analysis.operators.operators import operators
from steplens.analysis.step_trace import step_trace
from steplens.analysis.steps.times import step_times
from steplens.server.http.errors import Refusal
from steplens.server.runs import Library, Shown
from steplens.timeline.layout import SAME_CLOCK_NS
from steplens.trace.run import Run, Source
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Trace

#: columns that hold Unix times in every table that has them, unless the table says otherwise
_MOMENTS = (
    "start_ns", "end_ns", "device_start_ns", "launch_ns", "allocation_ns", "release_ns", "active_release_ns", "peak_allocated_ns",
    "peak_ns", "enqueue_start_ns", "enqueue_end_ns", "dequeue_start_ns", "dequeue_end_ns", "from_ns", "to_ns", "next_start_ns",
    "next_end_ns", "pickle_start_ns", "pickle_end_ns", "receive_start_ns", "receive_end_ns", "pin_end_ns",
)  # fmt: skip

#: of recorded tables in which names that are lengths elsewhere are times
_MORE_MOMENTS = {
    "step_points": ("forward_ns", "backward_ns"),
    "pipeline_epochs": ("workers_ns", "first_batch_ns"),
    "pipeline_tasks": ("collate_ns",),
}


#: column of rows that are told from an origin
ORIGIN = "_origin_ns"


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        name: in addresses.
        title: for people.
        of_trace: its rows for one trace.
        of_run: its rows for the whole run, in place of ``of_trace``, or where no trace is chosen.
        moments: columns that hold Unix times.
        units: of columns whose name does not tell.
        recorded: whether it holds what was recorded, as it is: such a table may have millions of rows and stays on disk.
    """

    name: str
    title: str
    of_trace: Callable[[Trace], pl.DataFrame] | None = None
    of_run: Callable[[Run], pl.DataFrame] | None = None
    moments: tuple[str, ...] = _MOMENTS
    units: Mapping[str, str] = field(default_factory=dict)
    recorded: bool = False


_ANALYSES = (
    Table("steps", "Where each step went", step_times),
    Table(
        "step_trace",
        "Step trace: interval, forward and backward, tail",
        step_trace.step_trace,
        moments=("start_ns", "forward_ns", "backward_ns", "end_ns"),
    ),
    Table("step_trace_averages", "Step trace: averages", lambda trace: step_trace.averages(trace).parts),
    Table("step_collectives", "Collectives of the steps", step_trace.step_collectives),
    Table("idle_causes", "Why the device was idle", idle_causes),
    Table("operators", "Operators by name", operators, lambda run: run.operators("name")),
    Table("operators_by_shape", "Operators by input shape", partial(operators, by="shape"), lambda run: run.operators("shape")),
    Table("operators_by_stack", "Operators by call stack", partial(operators, by="stack"), lambda run: run.operators("stack")),
    Table("modules", "Modules", partial(operators, by="module"), lambda run: run.operators("module")),
    Table("kernels", "Device tasks by name", kernel_statistics),
    Table("kernels_by_type", "Device tasks by type", partial(kernel_statistics, by="type")),
    Table("kernels_by_category", "Device tasks by category", partial(kernel_statistics, by="category")),
    Table("kernels_by_kind", "Device tasks by kind", partial(kernel_statistics, by="kind")),
    Table("op_statistic", "Device tasks by type and core", op_statistic),
    Table("device_time", "Time of the devices", partial(temporal_breakdown, per_device=True)),
    Table("device_kinds", "What the devices do at once", kind_breakdown),
    Table("device_idle", "Idle time by stream and cause", idle_breakdown),
    Table("runtime_calls", "Runtime calls", api_statistic),
    Table("launches", "Launches and their tasks", launches),
    Table("launch_statistics", "Launches by runtime call", launch_statistics),
    Table("launch_queues", "Tasks waiting on each stream", queue_summary),
    Table("memory", "Memory peaks", memory_summary),
    Table("allocations", "Allocations", operator_memory),
    Table("pipeline", "Operations of the data pipeline", operations),
    Table("loader_stages", "Stages of the data loaders", loaders.stages),
    Table("loader_workers", "Workers of the data loaders", loaders.workers),
    Table("loader_queues", "Batches that were ready when the loop asked", loaders.queue_depths, moments=(*_MOMENTS, "time_ns")),
    Table("loader_first_batches", "First batch of every epoch", loaders.first_batches),
    Table("loader_step_waits", "How long each step waited for batches", loaders.step_waits),
    Table("communication_overlap", "Communication hidden by computing", partial(communication_overlap, per_device=True)),
    Table("communication_times", "Communication operations", communication_times),
    Table("communication_bandwidth", "Bandwidth by packet size", communication_bandwidth),
    Table("communication_matrix", "Links between ranks", communication_matrix),
    Table("arrivals", "Arrival of the ranks at their collectives", of_run=lambda run: arrivals(run.traces)),
    Table("hold_ups", "How long each rank held up the others", of_run=lambda run: hold_ups(arrivals(run.traces))),
    Table("health", "What is doubtful about the data", of_run=lambda run: run.health()),
)


#: of the catalogue, what is in the list above already, some under other names
_LISTED = ("idle", "launches", "queues", "api_calls", "stream_idle", "overlap", "operators_by_module")


def _catalogued(analysis: Analysis, by: str | None) -> Table:
    name = analysis.name if by is None or by == analysis.groups[0] else f"{analysis.name}_by_{by}"
    title = analysis.question[0].upper() + analysis.question[1:] + (f", by {by}" if by is not None else "")

    def of_trace(trace: Trace) -> pl.DataFrame:
        return analysis(Run(trace.source, [(Source(trace.source), trace)], []), by)

    return Table(name, title, of_trace, lambda run: analysis(run, by))


_CATALOGUE = tuple(_catalogued(analysis, by) for analysis in ANALYSES for by in analysis.groups or (None,))


def _rows(name: str, trace: Trace) -> pl.DataFrame:
    return trace.required(name).collect()


_RECORDED = tuple(
    Table(
        f"recorded_{name}",
        f"Recorded: {name}",
        partial(_rows, name),
        # what was recorded at a time; of an analysis it is how long something took
        moments=(*_MOMENTS, "time_ns", *_MORE_MOMENTS.get(name, ())),
        recorded=True,
    )
    for name in SCHEMA
    if name != "health"
)

#: what MindSpore's profiler stores of operators of the host and of GPUs: name in the source -> title
_STORED = {
    "cpu_op_type_info": "Stored: operators of the host CPU by type",
    "cpu_op_detail_info": "Stored: operators of the host CPU",
    "gpu_op_type_info": "Stored: operators of the GPU by type",
    "gpu_op_detail_info": "Stored: operators of the GPU",
    "gpu_activity_data": "Stored: kernels of the GPU",
}
STORED_PREFIX = "stored_"


def _stored(name: str, trace: Trace) -> pl.DataFrame:
    return stored_table(trace, name)


_SOURCES = tuple(Table(STORED_PREFIX + name, title, partial(_stored, name)) for name, title in _STORED.items())

_known = {*(table.name for table in _ANALYSES), *_LISTED}
TABLES: dict[str, Table] = {
    table.name: table for table in (*_ANALYSES, *(one for one in _CATALOGUE if one.name not in _known), *_SOURCES, *_RECORDED)
}


def table(name: str) -> Table:
    """A table by its name.

    Raises:
        Refusal: there is none (404).
    """
    found = TABLES.get(name)
    if found is None:
        raise Refusal(404, "there is no table of this name", name, "GET /api/runs/0/tables lists them")
    return found


def rows(library: Library, shown: Shown, chosen: Table, trace: int | None, *, told: bool = False) -> pl.LazyFrame:
    """The rows of a table of a run.

    Args:
        library: keeps them.
        shown: the run.
        chosen: the table.
        trace: only of this trace; None is all of them.
        told: whether moments count from the origin of their trace, which the column ``ORIGIN`` then has, instead of Unix time;
            rows on another clock have none, and 0 there.
    """
    every = shown.run.traces
    if trace is None and len(every) == 1:
        trace = 0
    if trace is not None and chosen.of_trace is not None:
        return _of_trace(library, shown, chosen, trace, told)
    if chosen.of_run is not None:
        if trace is not None:
            shown.trace(trace)
        make = partial(chosen.of_run, shown.run)
        whole = library.frame(shown, ("table", chosen.name), make)
        return _from_origin(whole.lazy(), whole.columns, chosen, shown.origin_ns) if told else whole.lazy()
    frames = [
        _of_trace(library, shown, chosen, number, told).select(
            pl.lit(number, dtype=pl.Int64).alias("trace"), pl.lit(one.rank, dtype=pl.Int64).alias("rank"), pl.all()
        )
        for number, one in enumerate(every)
        if not chosen.recorded or _source(chosen) in one
    ]
    if frames:
        return pl.concat(frames, how="diagonal_relaxed")
    schema = SCHEMA[_source(chosen)]
    nothing = pl.LazyFrame(schema=schema)
    return _from_origin(nothing, list(schema), chosen, shown.origin_ns) if told else nothing


def frame(library: Library, shown: Shown, name: str, trace: int | None = None) -> pl.DataFrame:
    """A whole table, told from the origin."""
    return rows(library, shown, table(name), trace, told=True).drop(ORIGIN, strict=False).collect()


def _of_trace(library: Library, shown: Shown, chosen: Table, number: int, told: bool) -> pl.LazyFrame:
    trace = shown.trace(number)
    if chosen.recorded:
        found, names = trace.required(_source(chosen)), list(SCHEMA[_source(chosen)])
    else:
        assert chosen.of_trace is not None
        whole = library.frame(shown, ("table", chosen.name, number), partial(chosen.of_trace, trace))
        found, names = whole.lazy(), whole.columns
    return _from_origin(found, names, chosen, shown.origins[number]) if told else found


def _from_origin(found: pl.LazyFrame, names: Sequence[str], chosen: Table, origin_ns: int) -> pl.LazyFrame:
    moments = [name for name in names if name in chosen.moments]
    # rows on another clock, such as samples that count from the start of their sampling, are told as they are
    elsewhere = pl.any_horizontal(pl.lit(False), *((pl.col(name) - origin_ns).abs() > SAME_CLOCK_NS for name in moments))
    own = pl.when(elsewhere.fill_null(False)).then(0).otherwise(origin_ns).cast(pl.Int64)
    return found.with_columns(own.alias(ORIGIN)).with_columns(pl.col(moments) - pl.col(ORIGIN))


def _source(chosen: Table) -> str:
    return chosen.name.removeprefix("recorded_")
