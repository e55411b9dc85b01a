"""Device tasks of an accelerator: which of them communicate, and which step each belongs to."""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.trace.nesting import Int64Array
from steplens.trace.schema import COMMUNICATION_TYPE, NAME

#: kernels of the collective libraries; what a library calls its kernels is all that every version of a trace tells
_COMMUNICATION_KERNEL = r"(?i)^(nccl|rccl|hcom_|hccl)"

_ELEMENT_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "Float8_e4m3fn", "Float8_e5m2"), 1),
    **dict.fromkeys(("Half", "BFloat16", "Short"), 2),
    **dict.fromkeys(("Float", "Int"), 4),
    **dict.fromkeys(("Double", "Long"), 8),
}


def mark_communication(kernels: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with the type of communication tasks set to ``communication``."""
    communicates = pl.col("name").cast(pl.String).str.contains(_COMMUNICATION_KERNEL)
    return kernels.with_columns(
        type=pl.when(communicates).then(pl.lit(COMMUNICATION_TYPE)).otherwise(pl.col("type").cast(pl.String)).cast(NAME)
    )


def communication_rows(kernels: pl.DataFrame) -> pl.DataFrame:
    """The communication tasks as rows of ``communication``; size, group and kind where the source records them."""
    tasks = kernels.filter(pl.col("type").cast(pl.String) == COMMUNICATION_TYPE)
    known = set(tasks.columns)

    def text(column: str) -> pl.Expr:
        return pl.col(column).cast(pl.String) if column in known else pl.lit(None, dtype=pl.String)

    def number(column: str) -> pl.Expr:
        return pl.col(column).cast(pl.Int64) if column in known else pl.lit(None, dtype=pl.Int64)

    operation = text("collective").str.to_lowercase().fill_null("")
    kind = (
        pl.when(operation.str.contains("recv"))
        .then(pl.lit("receive"))
        .when(operation.str.contains("send"))
        .then(pl.lit("send"))
        .otherwise(pl.lit("collective"))
    )
    element_bytes = text("dtype").replace_strict(_ELEMENT_BYTES, default=None, return_dtype=pl.Int64)
    return tasks.select(
        name="name",
        kind=kind.cast(NAME),
        group=text("group").cast(NAME),
        ranks=number("group_size").cast(pl.Int32),
        bytes=number("elements") * element_bytes,
        dtype=text("dtype").cast(NAME),
        start_ns="start_ns",
        end_ns="end_ns",
        device="device",
        stream="stream",
        op="op" if "op" in known else pl.lit(None, dtype=pl.Int32),
        step="step",
        peer=pl.when(kind == "receive").then(number("source")).when(kind == "send").then(number("destination")).cast(pl.Int32),
    )


def device_steps(kernels: pl.DataFrame, steps: pl.DataFrame, launched_in: pl.Series) -> pl.Series:
    """Step of each device task by its start, within the steps' ranges on the device.

    An accelerator works behind the host, so a step's range on it is its own: from the start of the first task launched
    during the step to the end of the last one, or to the end of the step on the host if that is later. A step that
    launched nothing keeps its host range. Where ranges overlap, the earlier step has the task.

    Args:
        kernels: tasks with start_ns and end_ns, shape (n,).
        steps: id, start_ns, end_ns, sorted by start.
        launched_in: id of the step during which each task was launched, null where unknown, shape (n,).
    """
    first, last = (steps[column].to_numpy().copy() for column in ("start_ns", "end_ns"))
    own = (
        kernels.select("start_ns", "end_ns", step=launched_in)
        .drop_nulls("step")
        .group_by("step")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    )
    row_of = {step: row for row, step in enumerate(steps["id"].to_list())}
    for step, start, end in own.iter_rows():
        row = row_of.get(step)
        if row is not None:
            first[row], last[row] = start, max(end, int(last[row]))
    time: Int64Array = kernels["start_ns"].to_numpy()
    # the first range that ends behind the task's start: ends are made to rise, since a range inside an earlier one never wins
    row_index = np.searchsorted(np.maximum.accumulate(last), time, side="right")
    inside = row_index < len(first)
    row_index = np.minimum(row_index, len(first) - 1)
    inside &= first[row_index] <= time
    result: pl.Series = pl.Series("step", steps["id"].to_numpy()[row_index]).set(pl.Series(~inside), None)
    return result
