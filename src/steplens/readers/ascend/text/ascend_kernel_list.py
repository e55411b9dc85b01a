"""Joins the device tasks of a timeline with the list of kernels (op_summary, kernel_details) about the same tasks.

The timeline knows every task, its connection to the host and, in its overlap lanes, exact ends. The list knows only
tasks that compute or communicate, but their type, core, shapes, waits and measurements. No number is common to both at
every level (Level0 lists have neither stream nor task), so tasks are found by name and start.
"""

from __future__ import annotations

import polars as pl

from steplens.readers.ascend.ascend_communication import operation_kind, operation_name
from steplens.readers.common.trace_rows import add_rows
from steplens.trace.health import INFO, KERNEL_DETAILS, OPERATOR_DEVICE_TIMES, WARNING, HealthLog
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COMPUTE, NAME

#: starts in the list are cut off where those of the timeline are rounded, and both may have lost digits on their way
_TOLERANCE_NS = 1_000
_LENGTH_TOLERANCE_NS = 2
#: the list leaves out some kinds of task; more than this share is lost
_FEW_SHARE = 0.05

#: what the list knows better than the timeline
_BETTER = (
    "type", "core", "stream", "task_id", "model_id", "context_id", "state", "wait_ns", "blocks", "mix_blocks", "hf32",
    "input_shapes", "input_types", "input_formats", "output_shapes", "output_types", "output_formats", "kind",
)  # fmt: skip


def with_kernel_list(
    tables: dict[str, pl.DataFrame], details: pl.DataFrame, metrics: pl.DataFrame, health: HealthLog
) -> dict[str, pl.DataFrame]:
    """``tables`` with what a list of kernels says about the same tasks.

    Tasks keep the times of the timeline. A listed task that the timeline lacks becomes a task with the times of the list,
    and, if it communicates, a communication operation. Tasks get an ``id`` of their own, to which ``kernel_metrics`` refers.

    Args:
        tables: raw tables of a timeline; may lack ``kernels``.
        details: rows of ``kernels`` with ``id``, from ``ascend_csv.read_kernel_details``; may be empty.
        metrics: their measurements.
        health: gets what does not fit together.
    """
    if not details.height:
        return tables
    tables = dict(tables)
    details = details.rename({"id": "_detail"})
    tasks = tables.get("kernels", pl.DataFrame())
    if tasks.height:
        tasks = tasks.with_row_index("_task")
        pairs = _match_tasks(tasks, details)
        kernels = _update_tasks(tasks, pairs.join(details.select("_detail", *_BETTER), on="_detail", maintain_order="left"))
        missing = details.join(pairs, on="_detail", how="anti", maintain_order="left")
        # steps come from the host's ranges here
        missing = missing.drop("step").with_columns(device=pl.col("device").fill_null(tasks["device"].mode()[0]))
        _report_mismatches(kernels, missing, health)
        kernels = pl.concat([kernels, missing], how="diagonal_relaxed")
    else:
        kernels = missing = details.with_columns(device=pl.col("device").fill_null(0))
        if kernels["step"].null_count() == kernels.height:
            kernels = missing = kernels.drop("step")
    kernels = kernels.sort("device", "stream", "start_ns", maintain_order=True)
    kernels = kernels.with_columns(id=pl.int_range(pl.len(), dtype=pl.Int32))
    if metrics.height:
        numbers = kernels.select("id", kernel="_detail").drop_nulls("kernel")
        measured = metrics.join(numbers, on="kernel", how="inner", maintain_order="left")
        tables["kernel_metrics"] = measured.select(kernel="id", name="name", value="value")
    tables["kernels"] = kernels.drop("_detail", "_task", strict=False)
    add_rows(tables, "communication", _operations_of_tasks(missing))
    return tables


def _match_tasks(tasks: pl.DataFrame, details: pl.DataFrame) -> pl.DataFrame:
    """``_task`` and ``_detail`` of tasks that are the same, every one at most once."""
    rows = details.select("_detail", "name", "start_ns", "end_ns", stream_d="stream", device_d="device")
    candidates = tasks.select("_task", "name", "start_ns", "end_ns", "stream", "device")
    same = rows.join(candidates, on=["name", "start_ns"], how="inner", maintain_order="left")
    pairs = _unique_pairs(same.filter(_same_place()))
    left = rows.join(pairs, on="_detail", how="anti", maintain_order="left")
    if left.height:
        unpaired = candidates.join(pairs, on="_task", how="anti", maintain_order="left")
        pairs = pl.concat([pairs, _match_near_starts(left, unpaired)])
    return pairs


def _same_place() -> pl.Expr:
    """Device and stream are the same, or one side does not know them."""
    return (pl.col("stream") == pl.col("stream_d")).fill_null(True) & (pl.col("device") == pl.col("device_d")).fill_null(True)


def _match_near_starts(rows: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """Pairs of equal name and length whose starts are as near as lost digits allow."""
    near = rows.sort("start_ns").join_asof(
        tasks.rename({"end_ns": "end_t"}).with_columns(start_t="start_ns").sort("start_ns"),
        on="start_ns",
        by="name",
        strategy="nearest",
        tolerance=_TOLERANCE_NS,
        check_sortedness=False,
    )
    length = (pl.col("end_ns") - pl.col("start_ns")) - (pl.col("end_t") - pl.col("start_t"))
    return _unique_pairs(near.drop_nulls("_task").filter(_same_place() & (length.abs() <= _LENGTH_TOLERANCE_NS)))


def _unique_pairs(pairs: pl.DataFrame) -> pl.DataFrame:
    pairs = pairs.select("_task", "_detail")
    for side in ("_detail", "_task"):
        if pairs[side].n_unique() < pairs.height:
            pairs = pairs.unique(side, keep="first", maintain_order=True)
    return pairs


def _update_tasks(tasks: pl.DataFrame, listed: pl.DataFrame) -> pl.DataFrame:
    """Tasks with the values of the list where it has them."""
    joined = tasks.join(listed, on="_task", how="left", suffix="_d", maintain_order="left")
    both = [column for column in _BETTER if f"{column}_d" in joined.columns]
    better = {column: pl.coalesce(f"{column}_d", column) for column in both}
    if "kind" in better:
        # what lies on the lane of a group communicates, whatever a list calls its core
        by_lane = pl.col("kind").cast(pl.String) == KIND_COMMUNICATION
        better["kind"] = pl.when(by_lane).then("kind").otherwise(better["kind"])
    return joined.with_columns(**better).drop([f"{column}_d" for column in both])


def _report_mismatches(kernels: pl.DataFrame, missing: pl.DataFrame, health: HealthLog) -> None:
    if missing.height:
        message = "listed device tasks are not in the timeline, so nothing tells what launched them"
        health.add("tasks_not_in_timeline", WARNING, missing.height, message, OPERATOR_DEVICE_TIMES)
    kind = pl.col("kind").cast(pl.String)
    listed = kernels.filter(kind.is_in([KIND_COMPUTE, KIND_COMMUNICATION]))["_detail"]
    unlisted = listed.null_count()
    if unlisted:
        message = "device tasks of the timeline are not in the list of kernels"
        severity = INFO if unlisted < _FEW_SHARE * len(listed) else WARNING
        health.add("tasks_not_listed", severity, unlisted, message, KERNEL_DETAILS)


def _operations_of_tasks(tasks: pl.DataFrame) -> pl.DataFrame:
    """Communication operations for tasks that only the list has."""
    name = pl.col("name").cast(pl.String)
    return tasks.filter(pl.col("kind").cast(pl.String) == KIND_COMMUNICATION).select(
        *("name", "device", "stream", "start_ns", "end_ns"),
        *(["step"] if "step" in tasks.columns else []),
        kind=operation_kind(name).cast(NAME),
        operation=operation_name(name).cast(NAME),
    )
