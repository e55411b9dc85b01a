"""From raw events to the linked tables of a ``Trace``: nesting, self time, steps, modules, stacks, device work.

Every reader ends here, so that every source gets the same definitions. Nothing here knows a file format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.common import json_text
from steplens.trace.building import checks, cpu_device, device_work, stacks
from steplens.trace.building.classify import TYPE_IN_GRAPH, classify_tasks, is_in_graph
from steplens.trace.building.lookup import enclosing_rows, sort_rows
from steplens.trace.building.nesting import (
    Int64Array,
    Nesting,
    child_sums,
    inherit_values,
    lane_numbers,
    nest_calls,
    subtree_sums,
)
from steplens.trace.building.steps import find_steps, step_of
from steplens.trace.health import RANK_COMPARISON, RUN_OPTIONS, WARNING, HealthLog
from steplens.trace.schema import (
    CORE_CPU,
    KIND_OTHER,
    MODULE_PREFIX,
    NAME,
    SCHEMA,
    SCOPE_BACKWARD,
    SCOPE_MODULE,
)
from steplens.trace.trace import Trace, is_count

#: calls that are nested deeper count as this deep
_DEEPEST = (1 << 15) - 1
#: what ``meta`` says of the job, in words
_OF_JOB = {"rank": "rank", "world_size": "number of ranks"}


def build_trace(source: Path, raw: Mapping[str, pl.DataFrame], health: HealthLog, *, cpu_is_device: bool = True) -> Trace:
    """Link raw tables into a ``Trace``.

    Args:
        source: where the tables come from.
        raw: tables with the columns of ``trace.schema`` that the source knows; empty tables count as absent.
            ``ops`` needs name, start_ns, end_ns, pid, tid, scope. ``kernels`` and ``communication`` may carry what
            ``device_work.link_launches`` links them by. Values that a source knows better (``stack``, ``module``, ``step``,
            ``kind``) are kept.
        health: collects what is wrong with the data; becomes the ``health`` table.
        cpu_is_device: whether the operator calls of a trace without device tasks are its device work. False where an
            accelerator ran and its tasks are missing: the CPU's would pass for them.
    """
    tables = {name: frame for name, frame in raw.items() if frame.height}
    if "meta" in tables:
        tables["meta"] = _without_impossible(tables["meta"], health)
    steps = find_steps(tables, health)
    if steps is not None:
        tables["steps"] = steps
    if "pipeline_tasks" in tables:
        got = tables["pipeline_tasks"]["next_end_ns"].fill_null(-1).to_numpy()
        tables["pipeline_tasks"] = tables["pipeline_tasks"].with_columns(step=step_of(got, steps))
    linked = _link_ops(tables, steps, health) if "ops" in tables else None
    _link_device(tables, steps, linked, health)
    if linked is not None:
        if _cpu_computes(tables, cpu_is_device):
            _cpu_device(tables, linked)
        else:
            _device_times(tables, linked)
    if "kernels" in tables:
        if "self_ns" not in tables["kernels"].columns:
            tables["kernels"] = tables["kernels"].with_columns(self_ns=pl.col("end_ns") - pl.col("start_ns"))
        tables["kernels"] = _add_task_categories(tables["kernels"], tables.get("ops"))
    tables = {name: conform_to_schema(name, frame) for name, frame in tables.items()}
    checks.check_tables(tables, health)
    if health.findings:
        tables["health"] = health.frame()
    return Trace(source, tables)


def _without_impossible(meta: pl.DataFrame, health: HealthLog) -> pl.DataFrame:
    """``meta`` without a rank, or a number of ranks, that no job has: then it is not known, and what the file says is reported.

    -1 is what sources write that do not know it.
    """
    job_values = {
        key: json_text.loads_stored(value)
        for key, value in meta.filter(pl.col("key").is_in(_OF_JOB)).select("key", "value").rows()
    }
    impossible = [key for key, value in job_values.items() if type(value) is int and value != -1 and not is_count(value)]
    for key in impossible:
        message = (
            f"the source says that the {_OF_JOB[key]} is {str(job_values[key])[:40]}, which no job has; it counts as unknown"
        )
        health.add("damaged_header", WARNING, 1, message, (RANK_COMPARISON, RUN_OPTIONS))
    return meta.filter(~pl.col("key").is_in(impossible)) if impossible else meta


def conform_to_schema(name: str, frame: pl.DataFrame) -> pl.DataFrame:
    """``frame`` with exactly the columns, order and types of table ``name``; columns it lacks are null.

    So are numbers that its types cannot hold: a damaged source may give a garbage collection of generation ten billion.
    """
    present_columns = set(frame.columns)
    return pl.DataFrame(
        [
            frame[column].cast(dtype, strict=False) if column in present_columns else _null_column(column, dtype, frame.height)
            for column, dtype in SCHEMA[name].items()
        ]
    )


@dataclass(frozen=True)
class _Calls:
    """The nesting of the calls of ``ops``: lane per call, parents and subtrees, self times (ns)."""

    lane: Int64Array
    nesting: Nesting
    self_ns: Int64Array


def _link_ops(tables: dict[str, pl.DataFrame], steps: pl.DataFrame | None, health: HealthLog) -> _Calls:
    ops = tables["ops"]
    negative = int((ops["end_ns"] < ops["start_ns"]).sum())
    if negative:
        health.add(
            "negative_duration", "error", negative, "calls end before they start; their length counts as zero", "operator times"
        )
        ops = ops.with_columns(end_ns=pl.max_horizontal("start_ns", "end_ns"))
    # of calls with the same times the outer one was numbered first; without numbers the order of the source decides
    number = ["external_id"] if "external_id" in ops.columns else []
    order = ["pid", "tid", "start_ns", "end_ns", *number]
    ops = sort_rows(ops, order, descending=[column == "end_ns" for column in order])
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    lane = lane_numbers(ops["pid"].to_numpy(), ops["tid"].to_numpy())
    nesting = nest_calls(lane, start, end)
    duration = end - start
    self_ns = duration - child_sums(nesting.parent, duration)
    health.extend(checks.overlapping_calls(lane, nesting, start, end))

    is_module = ops["name"].cast(SCHEMA["ops"]["name"]).cat.starts_with(MODULE_PREFIX)
    scope = ops["scope"].set(is_module.fill_null(False), SCOPE_MODULE)
    ops = ops.with_columns(
        id=pl.int_range(ops.height, dtype=pl.Int32),
        parent=_nullable_indices(nesting.parent, pl.Int32),
        depth=pl.Series(np.minimum(nesting.depth, _DEEPEST), dtype=pl.Int16),
        self_ns=pl.Series(self_ns),
        counted_as=pl.Series(_counted_as(ops["name"].to_physical().to_numpy(), nesting), dtype=pl.Int32),
        step=step_of(start, steps),
        scope=scope,
    )
    if not _has_values(ops, "module"):
        ops = ops.with_columns(module=_module_paths(ops, nesting))
    if "python" in tables and not _has_values(ops, "stack"):
        ops = ops.with_columns(stack=stacks.call_stacks(ops, tables["python"]))
    if "memory" in tables:
        tables["memory"] = _memory_ops(tables["memory"], lane, ops, nesting)
    tables["ops"] = ops
    return _Calls(lane, nesting, self_ns)


def _has_values(frame: pl.DataFrame, column: str) -> bool:
    """Whether the source fills the column."""
    return column in frame.columns and frame[column].null_count() < frame.height


def _link_device(tables: dict[str, pl.DataFrame], steps: pl.DataFrame | None, calls: _Calls | None, health: HealthLog) -> None:
    """Launching calls and steps of device tasks and communication."""
    if "kernels" in tables:
        kernels = device_work.with_kind(tables["kernels"])
        # tasks that a source has numbered keep their numbers: kernel_metrics refers to them
        if "id" not in kernels.columns:
            order = [column for column in ("device", "stream", "start_ns", "end_ns", "correlation") if column in kernels.columns]
            kernels = sort_rows(kernels, order).with_columns(id=pl.int_range(pl.len(), dtype=pl.Int32))
        tables["kernels"] = kernels
    present = [name for name in ("kernels", "communication") if name in tables]
    ops = tables.get("ops")
    if calls is not None and ops is not None:
        for name in present:
            tables[name] = device_work.link_launches(tables[name], calls.lane, ops, calls.nesting, tables.get("api"))
    unplaced = [name for name in present if "step" not in tables[name].columns]
    if steps is not None and unplaced:
        placed = device_work.device_steps([tables[name] for name in unplaced], steps, ops)
        for name, column in zip(unplaced, placed, strict=True):
            tables[name] = tables[name].with_columns(step=column)
    else:
        for name in unplaced:
            tables[name] = tables[name].with_columns(step=pl.lit(None, dtype=pl.Int64))
    if "kernels" in tables:
        if ops is not None:
            device_work.report_unlinked(tables["kernels"], health)
        if "communication" not in tables:
            tables["communication"] = device_work.communication_rows(tables["kernels"])
            if not tables["communication"].height:
                del tables["communication"]


def _add_task_categories(kernels: pl.DataFrame, ops: pl.DataFrame | None) -> pl.DataFrame:
    """Add the category of each task, which is also the type of those whose source and name tell none."""
    category = (
        pl.coalesce("category", pl.lit(classify_tasks(kernels, ops)))
        if _has_values(kernels, "category")
        else classify_tasks(kernels, ops)
    )
    types = [pl.col("type")] if "type" in kernels.columns else []
    categorised = kernels.with_columns(category=category)
    return categorised.with_columns(type=pl.coalesce(*types, _types_in_names(kernels), "category"))


def _types_in_names(kernels: pl.DataFrame) -> pl.Expr:
    """The types that the names of tasks end in, as those of operators in a graph of MindSpore do."""
    names = kernels.select("name").unique()
    if not any(is_in_graph(name) for name in names["name"].cast(pl.String).to_list() if name is not None):
        return pl.lit(None, dtype=NAME)
    names = names.drop_nulls()
    types = names.with_columns(_type=pl.col("name").cast(pl.String).str.extract(TYPE_IN_GRAPH).cast(NAME)).drop_nulls()
    if types.is_empty():
        return pl.lit(None, dtype=NAME)
    return pl.lit(kernels.select("name").join(types, on="name", how="left", maintain_order="left")["_type"])


def _cpu_computes(tables: Mapping[str, pl.DataFrame], cpu_is_device: bool) -> bool:
    """Whether the operator calls are the device work: nothing else is, or the source says that it was the CPU's."""
    if "kernels" in tables:
        kernels = tables["kernels"]
        return "core" in kernels.columns and bool(kernels["core"].unique().cast(pl.String).eq_missing(CORE_CPU).all())
    # calls that launch device work tell of an accelerator whose tasks are lost
    return cpu_is_device and not checks.launches_device_work(tables.get("api"))


def _cpu_device(tables: dict[str, pl.DataFrame], calls: _Calls) -> None:
    """The CPU's own tasks and communication, where it is the only device, and the device time of every call."""
    ops = tables["ops"]
    communication = cpu_device.communication_names(ops)
    task = cpu_device.tasks_of_calls(ops, communication)
    tables["ops"] = _with_device_time(ops, calls, np.where(task >= 0, calls.self_ns, 0))
    tasks = cpu_device.cpu_tasks(ops, task)
    if "kernels" in tables:
        tasks = cpu_device.with_recorded(tasks, tables["kernels"])
    if not tasks.height:
        return
    tables["kernels"] = tasks
    if "communication" not in tables and len(communication):
        tables["communication"] = cpu_device.cpu_communication(ops, tables.get("meta"))


def _device_times(tables: dict[str, pl.DataFrame], calls: _Calls) -> None:
    """Add to every call the time of the device tasks that it, and everything below it, launched.

    Tasks that neither compute nor communicate nor copy do not count: they are waits, or parts of a task that does.
    """
    ops = tables["ops"]
    device_self = np.zeros(ops.height, dtype=np.int64)
    if "kernels" in tables:
        works = tables["kernels"].filter(pl.col("kind").cast(pl.String).ne_missing(KIND_OTHER))
        linked = works.select("op", length=pl.col("end_ns") - pl.col("start_ns")).drop_nulls("op")
        np.add.at(device_self, linked["op"].to_numpy(), linked["length"].to_numpy())
    tables["ops"] = _with_device_time(ops, calls, device_self)


def _with_device_time(ops: pl.DataFrame, calls: _Calls, device_self: Int64Array) -> pl.DataFrame:
    """Calls with their device time, ns: their own, and with that of everything below them."""
    return ops.with_columns(
        device_self_ns=pl.Series(device_self),
        device_total_ns=pl.Series(subtree_sums(calls.nesting.subtree_end, device_self)),
    )


def _counted_as(name: npt.NDArray[np.uint32], nesting: Nesting) -> Int64Array:
    """For each call the call whose statistics it joins: an only child with its parent's name joins the parent."""
    parent, subtree_end = nesting.parent, nesting.subtree_end
    row = np.arange(len(parent), dtype=np.int64)
    # an only child comes behind its parent, and both end with the same descendant
    repeats = (parent[1:] == row[:-1]) & (subtree_end[1:] == subtree_end[:-1]) & (name[1:] == name[:-1])
    row[1:][repeats] = 0
    # the parent of each that repeats it is the row above: what both join is the last row before that does not repeat
    counted_as: Int64Array = np.maximum.accumulate(row)
    return counted_as


def _nullable_indices(values: Int64Array, dtype: type[pl.DataType]) -> pl.Series:
    """Indices as a column, -1 as null."""
    series = pl.Series(values)
    result: pl.Series = series.set(series < 0, None).cast(dtype)
    return result


def _null_column(name: str, dtype: pl.DataType, count: int) -> pl.Series:
    """A column of nulls."""
    column: pl.Series = pl.Series(name, [None], dtype=dtype).new_from_index(0, count)
    return column


def _module_paths(ops: pl.DataFrame, nesting: Nesting) -> pl.Series:
    """Module path of each call: the innermost module range around it, or, in backward, that of its forward call."""
    modules = ops.select("name", rows=pl.int_range(pl.len()), found=pl.col("scope") == SCOPE_MODULE).filter("found")
    if not modules.height:
        return _null_column("module", SCHEMA["ops"]["module"], ops.height)
    texts = modules["name"].cast(pl.String).str.slice(len(MODULE_PREFIX))
    unique, codes = np.unique(texts.to_numpy(), return_inverse=True)
    module_of = np.full(ops.height, -1, dtype=np.int64)
    module_of[modules["rows"].to_numpy()] = codes
    forward = inherit_values(nesting.parent, module_of)
    if "sequence" in ops.columns:
        links = ops.select(
            "sequence",
            row=pl.int_range(pl.len()),
            backward=pl.col("scope") == SCOPE_BACKWARD,
            code=pl.Series(forward),
        ).drop_nulls("sequence")
        links = links.filter(pl.col("sequence") >= 0)
        source = links.filter(~pl.col("backward") & (pl.col("code") >= 0)).unique("sequence", keep="last")
        joined = links.filter("backward").join(source.select("sequence", forward_code="code"), on="sequence")
        module_of[joined["row"].to_numpy()] = joined["forward_code"].to_numpy()
        forward = inherit_values(nesting.parent, module_of)
    lookup = pl.Series("module", [*unique.tolist(), None], dtype=pl.String)
    modules_of: pl.Series = lookup.gather(np.where(forward < 0, len(unique), forward)).cast(SCHEMA["ops"]["module"])
    return modules_of


def _memory_ops(memory: pl.DataFrame, lane: Int64Array, ops: pl.DataFrame, nesting: Nesting) -> pl.DataFrame:
    """Add the innermost call around each allocator event, on the thread of the event."""
    memory = sort_rows(memory, ["time_ns"])
    # an event on a launching thread belongs to the call whose thread enqueued the task
    where = ("launch_ns", "launch_pid", "launch_tid") if "launch_tid" in memory.columns else ("time_ns", "pid", "tid")
    op = enclosing_rows(memory.select(where), ops, lane, nesting.parent)
    return memory.with_columns(op=op.cast(pl.Int32))
