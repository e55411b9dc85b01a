"""What kinds of device tasks ran, and how long they took."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import polars as pl

from steplens.analysis.steps.basis import divide_by_steps, step_basis
from steplens.trace.building.devices import cpu_is_device
from steplens.trace.building.nesting import Int64Array, nest_calls, subtree_sums
from steplens.trace.schema import KIND_OTHER
from steplens.trace.trace import Trace

#: what device tasks can be added up by
KEYS = ("name", "type", "category", "kind")
#: what of a step is a sum over its tasks
_SUMS = ("count", "total_ns")
#: earlier than any time
_EARLIEST = -(1 << 63)


def op_statistic(trace: Trace, *, per_step: bool = False) -> pl.DataFrame:
    """Device tasks added up per type and core, longest total first.

    Source: the ``kernels`` table; device times (``self_ns``) are those of the device clock, in ns: of a task of the CPU without
    the calls that it makes, which are tasks of their own. Tasks that run at the same time on two streams both count, so the
    total may exceed the elapsed time.

    Args:
        trace: one rank.
        per_step: count and total_ns of a step, as in ``kernel_statistics``.

    Returns:
        type, core, count, total_ns, min_ns, mean_ns (rounded to the nearest ns), max_ns and ratio_percent (share of
        the total of all rows, 0 when nothing took any time).
    """
    duration = pl.col("self_ns")
    basis = step_basis(trace).device_steps if per_step else ()
    rows = (
        trace.required("kernels")
        .filter(pl.col("step").is_in(list(basis)) if basis else pl.lit(True))
        .group_by(pl.col("type"), pl.col("core"))
        .agg(count=pl.len().cast(pl.Int64), total_ns=duration.sum(), min_ns=duration.min(), max_ns=duration.max())
        .collect()
    )
    total = int(rows["total_ns"].sum() or 0)
    rows = (
        rows.with_columns(
            pl.col("type").cast(pl.String),
            pl.col("core").cast(pl.String),
            mean_ns=(2 * pl.col("total_ns") + pl.col("count")) // (2 * pl.col("count")),
            ratio_percent=pl.col("total_ns") * 100 / total if total else pl.lit(0.0),
        )
        .sort("total_ns", "type", "core", descending=[True, False, False])
        .select("type", "core", "count", "total_ns", "min_ns", "mean_ns", "max_ns", "ratio_percent")
    )
    return divide_by_steps(rows, _SUMS, len(basis)) if per_step else rows


def kernel_statistics(
    trace: Trace, by: str = "name", steps: Collection[int] | None = None, *, per_step: bool = False
) -> pl.DataFrame:
    """Device tasks added up by name, type, category or kind, longest total first.

    Source: the ``kernels`` table; device times (``self_ns``) are those of the device clock, in ns, as in ``op_statistic``. Tasks
    that run at the same time on two streams both count. With ``steps`` only tasks of these steps count. On a CPU counts
    and sums are those of the calls and self times of ``operators``.

    Args:
        trace: one rank.
        by: one of ``KEYS``.
        steps: only tasks of these steps; all by default.
        per_step: ``count`` and ``total_ns`` of a step, as means over the chosen steps whose work was recorded
            (``analysis.steps.basis``): of the tasks that these steps launched. ``ratio_percent`` is then the share of all tasks
            that compute, communicate or copy, null of what only waits. Without steps they are sums of the whole recording.

    Returns:
        the key, kind (where it is not the key; null where tasks of several kinds share the key), count, total_ns, min_ns,
        max_ns, mean_ns (exact ratio), std_ns (of a sample: divided by count - 1; 0 for a single task) and ratio_percent
        (share of the total of all rows).

    Raises:
        ValueError: ``by`` is none of ``KEYS``.
    """
    if by not in KEYS:
        raise ValueError(f"kernel_statistics(by={by!r}): by must be one of {', '.join(KEYS)}")
    duration = pl.col("self_ns")
    basis = step_basis(trace).device_steps if per_step else ()
    if basis:
        steps = basis
    kind = [] if by == "kind" else [pl.col("kind").first().alias("kind"), pl.col("kind").n_unique().alias("kinds")]
    rows = (
        trace.required("kernels")
        .filter(pl.lit(True) if steps is None else pl.col("step").is_in(list(steps)))
        .group_by(by)
        .agg(
            *kind,
            count=pl.len().cast(pl.Int64),
            total_ns=duration.sum(),
            min_ns=duration.min(),
            max_ns=duration.max(),
            mean_ns=duration.mean(),
            std_ns=duration.std().fill_null(0.0),
        )
        .collect()
    )
    if by != "kind":
        rows = rows.with_columns(kind=pl.when(pl.col("kinds") == 1).then(pl.col("kind").cast(pl.String))).drop("kinds")
    works = pl.col("kind").cast(pl.String).ne_missing(KIND_OTHER) if per_step else pl.lit(True)
    total = int(rows.filter(works)["total_ns"].sum() or 0)
    share = pl.col("total_ns") * 100 / total if total else pl.lit(0.0)
    rows = rows.with_columns(pl.col(by).cast(pl.String), ratio_percent=pl.when(works).then(share))
    rows = rows.sort("total_ns", by, descending=[True, False])
    return divide_by_steps(rows, _SUMS, len(basis)) if per_step else rows


def outermost_tasks(trace: Trace) -> pl.LazyFrame:
    """Device tasks that lie in no other one: all of an accelerator; of the CPU, whose tasks are calls, the outermost.

    Source: ``kernels``. Their lengths are all the time in which the CPU computes.
    """
    tasks = trace.required("kernels")
    if not cpu_is_device(trace):
        return tasks
    reach = pl.col("end_ns").cum_max().shift(fill_value=_EARLIEST)
    in_order = ["start_ns", pl.col("end_ns").neg()]
    return tasks.filter((pl.col("end_ns") > reach).over("device", "stream", order_by=in_order))


def core_self_ns(trace: Trace, core: str) -> Int64Array | None:
    """Device time (ns) that each operator call itself launched on one kind of core; None when nothing ran there.

    The scheduler's name of a task decides where a source has it, as in the files of the Ascend PyTorch Profiler. Entry i
    belongs to row i of ``ops``; tasks without a known call count nowhere.
    """
    tasks = (
        trace.required("kernels")
        .filter((pl.coalesce(pl.col("task_type", "core").cast(pl.String)) == core) & (pl.col("op") >= 0))
        .select("op", duration="self_ns")
        .collect()
    )
    if tasks.is_empty():
        return None
    count = trace.required("ops").select(pl.len()).collect().item()
    result = np.zeros(count, dtype=np.int64)
    op = tasks["op"].to_numpy()
    has_op = op < count
    np.add.at(result, op[has_op], tasks["duration"].to_numpy()[has_op])
    return result


def subtree_total_ns(trace: Trace, self_ns: Int64Array) -> Int64Array:
    """Sum of ``self_ns`` (one entry per row of ``ops``) over each call and everything below it."""
    ops = trace.required("ops").select("pid", "tid", "start_ns", "end_ns").collect()
    lane = ops.select(pl.struct("pid", "tid").rle_id().cast(pl.Int64)).to_series().to_numpy()
    nesting = nest_calls(lane, ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy())
    return subtree_sums(nesting.subtree_end, self_ns)
