"""From raw events to the linked tables of a ``Trace``: nesting, self time, steps, modules, stacks, device work.

Every reader ends here, so that every source gets the same definitions. Nothing here knows a file format.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.trace import cpu_device, device_work, stacks
from steplens.trace.health import HealthLog
from steplens.trace.nesting import Int64Array, Nesting, child_sums, inherit, innermost, lanes, nest, subtree_sums
from steplens.trace.schema import (
    CORE_CPU,
    MODULE_PREFIX,
    SCHEMA,
    SCOPE_BACKWARD,
    SCOPE_FUNCTION,
    SCOPE_MODULE,
    STEP_PREFIX,
)
from steplens.trace.trace import Trace


def build_trace(source: Path, raw: Mapping[str, pl.DataFrame], health: HealthLog) -> Trace:
    """Link raw tables into a ``Trace``.

    Args:
        source: where the tables come from.
        raw: tables with the columns of ``trace.schema`` that the source knows; empty tables count as absent.
            ``ops`` needs name, start_ns, end_ns, pid, tid, scope; ``kernels`` may carry external_id.
        health: collects what is wrong with the data; becomes the ``health`` table.
    """
    tables = {name: frame for name, frame in raw.items() if frame.height}
    steps = _steps(tables, health)
    if steps is not None:
        tables["steps"] = steps
    if "ops" in tables:
        _link_ops(tables, steps, health)
    for name in ("kernels", "communication"):
        if name in tables and "step" not in tables[name].columns:
            tables[name] = tables[name].with_columns(step=_step_of(tables[name]["start_ns"].to_numpy(), steps))
    if health.findings:
        tables["health"] = health.frame()
    return Trace(source, {name: conform(name, frame) for name, frame in tables.items()})


def conform(name: str, frame: pl.DataFrame) -> pl.DataFrame:
    """``frame`` with exactly the columns, order and types of table ``name``; columns it lacks are null."""
    columns = [
        (pl.col(column).cast(dtype) if column in frame.columns else pl.lit(None, dtype=dtype).alias(column))
        for column, dtype in SCHEMA[name].items()
    ]
    return frame.select(columns)


def _steps(tables: Mapping[str, pl.DataFrame], health: HealthLog) -> pl.DataFrame | None:
    """The steps, from the ranges named ``ProfilerStep#<id>``; a thread of its own (or a device copy) counts once."""
    if "steps" in tables:
        return tables["steps"]
    if "ops" not in tables:
        return None
    found = (
        tables["ops"]
        .lazy()
        .filter(pl.col("name").cast(pl.String).str.starts_with(STEP_PREFIX))
        .select(
            pl.col("name").cast(pl.String).str.slice(len(STEP_PREFIX)).cast(pl.Int64, strict=False).alias("id"),
            "start_ns",
            "end_ns",
            "pid",
            "tid",
        )
        .drop_nulls("id")
        .sort("start_ns")
        .collect()
    )
    if not found.height:
        return None
    unique = found.unique("id", keep="first", maintain_order=True)
    if unique.height < found.height:
        health.add(
            "repeated_steps",
            "warning",
            found.height - unique.height,
            "step numbers occur more than once; the first range of each is used",
            "step times",
        )
    return unique


def _step_of(time_ns: Int64Array, steps: pl.DataFrame | None) -> pl.Series:
    """Id of the step whose range ``[start, end)`` holds each time; null outside all steps."""
    if steps is None:
        return _nulls("step", pl.Int64(), len(time_ns))
    start, end, ids = (steps[column].to_numpy() for column in ("start_ns", "end_ns", "id"))
    index = np.searchsorted(start, time_ns, side="right") - 1
    inside = (index >= 0) & (time_ns < end[np.maximum(index, 0)])
    found: pl.Series = pl.Series("step", ids[np.maximum(index, 0)]).set(pl.Series(~inside), None)
    return found


def _link_ops(tables: dict[str, pl.DataFrame], steps: pl.DataFrame | None, health: HealthLog) -> None:
    ops = tables["ops"]
    negative = int((ops["end_ns"] < ops["start_ns"]).sum())
    if negative:
        health.add(
            "negative_duration", "error", negative, "calls end before they start; their length counts as zero", "operator times"
        )
        ops = ops.with_columns(end_ns=pl.max_horizontal("start_ns", "end_ns"))
    ops = ops.sort("pid", "tid", "start_ns", "end_ns", descending=[False, False, False, True], maintain_order=True)
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    lane = lanes(ops["pid"].to_numpy(), ops["tid"].to_numpy())
    nesting = nest(lane, start, end)
    duration = end - start
    self_ns = duration - child_sums(nesting.parent, duration)
    _check_overlap(lane, start, end, nesting, health)

    names = ops["name"].cast(pl.String)
    is_module = names.str.starts_with(MODULE_PREFIX)
    scope = ops["scope"].set(is_module, SCOPE_MODULE)
    ops = ops.with_columns(
        id=pl.int_range(ops.height, dtype=pl.Int32),
        parent=_nullable(nesting.parent, pl.Int32),
        depth=pl.Series(nesting.depth, dtype=pl.Int16),
        self_ns=pl.Series(self_ns),
        counted_as=pl.Series(_counted_as(ops["name"].to_physical().to_numpy(), nesting), dtype=pl.Int32),
        step=_step_of(start, steps),
        scope=scope,
    )
    ops = ops.with_columns(module=_modules(ops, nesting))
    if "python" in tables:
        ops = ops.with_columns(stack=stacks.call_stacks(ops, tables["python"]))
    if "memory" in tables:
        tables["memory"] = _memory_ops(tables["memory"], lane, ops, nesting)

    if "kernels" in tables:
        kernels = device_work.mark_communication(_kernel_ops(tables["kernels"], ops, tables.get("api"), health))
        if steps is not None and "op" in kernels.columns:
            kernels = kernels.with_columns(step=device_work.device_steps(kernels, steps, ops["step"].gather(kernels["op"])))
        else:
            kernels = kernels.with_columns(step=_step_of(kernels["start_ns"].to_numpy(), steps))
        tables["kernels"] = kernels
        communication = device_work.communication_rows(kernels)
        if communication.height and "communication" not in tables:
            tables["communication"] = communication
    else:
        tasks = cpu_device.cpu_tasks(ops, nesting, self_ns)
        if tasks.height:
            tables["kernels"] = tasks
    if "communication" not in tables and "kernels" in tables and tables["kernels"]["core"][0] == CORE_CPU:
        communication = cpu_device.cpu_communication(ops)
        if communication.height:
            tables["communication"] = communication
    device_self = np.zeros(ops.height, dtype=np.int64)
    if "kernels" in tables:
        linked = tables["kernels"].select("op", length=pl.col("end_ns") - pl.col("start_ns")).drop_nulls("op")
        np.add.at(device_self, linked["op"].to_numpy(), linked["length"].to_numpy())
    tables["ops"] = ops.with_columns(
        device_self_ns=pl.Series(device_self),
        device_total_ns=pl.Series(subtree_sums(nesting.subtree_end, device_self)),
    )


def _counted_as(name: npt.NDArray[np.uint32], nesting: Nesting) -> Int64Array:
    """For each call the call whose statistics it joins: an only child with its parent's name joins the parent."""
    parent = nesting.parent
    children = np.bincount(parent[parent >= 0], minlength=len(parent))
    above = np.maximum(parent, 0)
    repeats = (parent >= 0) & (name == name[above]) & (children[above] == 1)
    return inherit(parent, nesting.depth, np.where(repeats, -1, np.arange(len(parent))))


def _check_overlap(lane: Int64Array, start: Int64Array, end: Int64Array, nesting: Nesting, health: HealthLog) -> None:
    """Count calls that start inside their predecessor on the thread and end behind it."""
    partial = (lane[1:] == lane[:-1]) & (start[1:] < end[:-1]) & (end[1:] > end[:-1])
    count = int(partial.sum())
    if count:
        health.add(
            "overlapping_calls",
            "warning",
            count,
            "calls overlap another call of their thread without lying inside it (asynchronous ranges)",
            "self time of the calls around them",
        )


def _nullable(values: Int64Array, dtype: type[pl.DataType]) -> pl.Series:
    """Indices as a column, -1 as null."""
    series = pl.Series(values)
    result: pl.Series = series.set(series < 0, None).cast(dtype)
    return result


def _nulls(name: str, dtype: pl.DataType, count: int) -> pl.Series:
    """A column of nulls."""
    column: pl.Series = pl.Series(name, [None], dtype=dtype).new_from_index(0, count)
    return column


def _modules(ops: pl.DataFrame, nesting: Nesting) -> pl.Series:
    """Module path of each call: the innermost module range around it, or, in backward, that of its forward call."""
    modules = ops.select("name", rows=pl.int_range(pl.len()), found=pl.col("scope") == SCOPE_MODULE).filter("found")
    if not modules.height:
        return _nulls("module", SCHEMA["ops"]["module"], ops.height)
    texts = modules["name"].cast(pl.String).str.slice(len(MODULE_PREFIX))
    unique, codes = np.unique(texts.to_numpy(), return_inverse=True)
    own = np.full(ops.height, -1, dtype=np.int64)
    own[modules["rows"].to_numpy()] = codes
    forward = inherit(nesting.parent, nesting.depth, own)
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
        own[joined["row"].to_numpy()] = joined["forward_code"].to_numpy()
        forward = inherit(nesting.parent, nesting.depth, own)
    lookup = pl.Series("module", [*unique.tolist(), None], dtype=pl.String)
    modules_of: pl.Series = lookup.gather(np.where(forward < 0, len(unique), forward)).cast(SCHEMA["ops"]["module"])
    return modules_of


def _memory_ops(memory: pl.DataFrame, lane: Int64Array, ops: pl.DataFrame, nesting: Nesting) -> pl.DataFrame:
    """Add the innermost call around each allocator event, on the thread of the event."""
    memory = memory.sort("time_ns", maintain_order=True)
    time, pid, tid = (memory[column].to_numpy() for column in ("time_ns", "pid", "tid"))
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    found = np.full(len(time), -1, dtype=np.int64)
    bounds = np.flatnonzero(np.r_[True, lane[1:] != lane[:-1], True])
    for low, high in itertools.pairwise(bounds):
        rows = np.flatnonzero((pid == ops["pid"][int(low)]) & (tid == ops["tid"][int(low)]))
        parent = nesting.parent[low:high]
        local = innermost(start[low:high], end[low:high], np.where(parent < 0, -1, parent - low), time[rows])
        found[rows] = np.where(local < 0, -1, local + low)
    return memory.with_columns(op=_nullable(found, pl.Int32))


def _kernel_ops(kernels: pl.DataFrame, ops: pl.DataFrame, api: pl.DataFrame | None, health: HealthLog) -> pl.DataFrame:
    """Link device tasks to the call that launched them, and add the time from launch to start."""
    kernels = kernels.sort("device", "stream", "start_ns").with_columns(id=pl.int_range(pl.len(), dtype=pl.Int32))
    if api is not None and "correlation" in kernels.columns and "correlation" in api.columns:
        launches = api.drop_nulls("correlation").unique("correlation", keep="first")
        kernels = kernels.join(
            launches.select("correlation", launch_ns="start_ns", launch_external="external_id"), on="correlation", how="left"
        ).with_columns(wait_ns=pl.col("start_ns") - pl.col("launch_ns"))
        if "external_id" in kernels.columns:
            kernels = kernels.with_columns(external_id=pl.coalesce("external_id", "launch_external"))
    if "external_id" in kernels.columns and "external_id" in ops.columns:
        targets = ops.filter(pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD]) & pl.col("external_id").is_not_null())
        targets = targets.unique("external_id", keep="first").select("external_id", op="id")
        kernels = kernels.join(targets, on="external_id", how="left").sort("id")
        lost = int(kernels["op"].null_count())
        if lost:
            health.add(
                "kernels_without_operator",
                "warning",
                lost,
                "device tasks have no operator that launched them",
                "device time per operator",
            )
    return kernels
