"""The parts of collectives in a timeline: what the events on the planes below a group tell of tasks of the hardware.

A part appears twice: among the tasks of the hardware, and on a plane, which names its ranks, transport and size. Both have the
same start, task and context. What the plane tells travels with the task (``INNER``) until the tasks are numbered, and then
becomes rows of ``source_tables``, as a database has them.
"""

from __future__ import annotations

import polars as pl

from steplens.formats.ascend_database import INNER_TASKS
from steplens.formats.ascend_terms import NO_NUMBER
from steplens.formats.trace_view import PART_COLUMNS
from steplens.readers.common.trace_rows import add_rows, optional_column, source_rows

#: column of ``kernels`` that holds what a plane tells of a task
INNER = "inner_task"
#: column of COMMUNICATION_TASK_INFO -> column of the events on planes
_DETAILS = {"taskType": "inner_type", "planeId": "plane", **PART_COLUMNS}
_PLACE = ("device", "start_ns", "task_id", "context_id")


def with_details(tasks: pl.DataFrame, parts: pl.DataFrame, planes: dict[tuple[int, int], int]) -> pl.DataFrame:
    """``tasks`` with what the planes tell of them; unchanged where there are no planes.

    Args:
        tasks: tasks of the hardware with device, start_ns, task_id and context_id.
        parts: the events of communication, operations among them.
        planes: (process id, thread id) -> number of a plane.
    """
    if not tasks.height or not parts.height or "inner_task_id" not in parts.columns:
        return tasks
    lanes = pl.DataFrame(
        [(pid, tid, number) for (pid, tid), number in planes.items()],
        schema={"pid": pl.Int64, "tid": pl.Int64, "_plane": pl.Int64},
        orient="row",
    )
    parts = parts.join(lanes, on=["pid", "tid"], how="inner", maintain_order="left").drop("plane", strict=False)
    parts = parts.rename({"_plane": "plane"}).drop_nulls("inner_task_id")
    if not parts.height:
        return tasks
    present = {column: member for column, member in _DETAILS.items() if member in parts.columns}
    context = optional_column(parts, "inner_context")
    detailed_parts = parts.select(
        "device",
        "start_ns",
        task_id="inner_task_id",
        context_id=pl.when(context != NO_NUMBER).then(context),
        **{INNER: pl.struct([pl.col(member).cast(pl.String).alias(column) for column, member in present.items()])},
    )
    # a part has one task: of two that cannot be told apart neither is named
    detailed_parts = detailed_parts.unique(_PLACE, keep="none")
    return tasks.join(detailed_parts, on=_PLACE, how="left", maintain_order="left", nulls_equal=True)


def with_inner_tasks(tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Tables with what planes tell of tasks as rows of ``source_tables``; tasks get the numbers that these refer to."""
    kernels = tables.get("kernels")
    if kernels is None or INNER not in kernels.columns:
        return tables
    if "id" not in kernels.columns:
        kernels = kernels.sort("device", "stream", "start_ns", maintain_order=True)
        kernels = kernels.with_columns(id=pl.int_range(pl.len(), dtype=pl.Int32))
    rows = kernels.drop_nulls(INNER).select(pl.col("id").alias("kernel"), INNER).unnest(INNER)
    tables = {**tables, "kernels": kernels.drop(INNER)}
    if rows.height:
        add_rows(tables, "source_tables", source_rows(INNER_TASKS, rows, absent=None))
    return tables
