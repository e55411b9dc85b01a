"""How long the largest kernels and operators of one rank take: small enough to keep of every rank of a job."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.analysis.steps.basis import step_basis
from steplens.analysis.tools.once import once_if_small
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.building.devices import cpu_is_device
from steplens.trace.schema import KIND_COMPUTE, KIND_COPY, SCOPE_BACKWARD, SCOPE_FUNCTION
from steplens.trace.trace import Trace

DURATIONS = table_schema("name: String, input_shapes: String, steps, calls: Float64, step_ns: Float64, single_ns: Float64")
#: so many are kept, and fewer of long names: so many bytes are for names and figures together
_MOST_ROWS, _MOST_BYTES = 12, 1500
_BYTES_OF_FIGURES = 40
_KEY = ["name", "input_shapes"]


@once_if_small
def kernel_durations(trace: Trace) -> pl.DataFrame:
    """The kernels of a device that take most of a step, the longest first; columns as in ``DURATIONS``.

    Tasks that compute or copy, by name and, where they were recorded, shapes of the inputs: communication says how long a rank
    waits. ``calls`` and ``step_ns``: of a step, means over the ``steps`` that figures are of and whose work was recorded
    (``steps.basis``), sums of the whole recording where it has no steps, and ``steps`` is 0. ``single_ns``: median of single
    ones.
    No rows where the CPU is the device: its tasks are the operators.
    """
    if cpu_is_device(trace):
        return pl.DataFrame(schema=DURATIONS)
    tasks = trace.required("kernels").filter(pl.col("kind").cast(pl.String).is_in([KIND_COMPUTE, KIND_COPY]))
    return _largest_of_step(tasks, step_basis(trace).device_steps)


@once_if_small
def operator_durations(trace: Trace) -> pl.DataFrame:
    """The same of operators and the time that their calls run themselves on the host; ranges that somebody marked are none."""
    calls = trace.required("ops").filter(pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD]))
    return _largest_of_step(calls, step_basis(trace).steps)


def _largest_of_step(rows: pl.LazyFrame, steps: Sequence[int]) -> pl.DataFrame:
    """What takes most of a step, by name and shapes: as many rows as are kept."""
    counted = rows.filter(pl.col("step").is_in(list(steps))) if steps else rows
    key = [pl.col(name).cast(pl.String) for name in _KEY]
    sums = counted.select(*key, "self_ns").drop_nulls(["name", "self_ns"]).group_by(_KEY).agg(
        calls=pl.len(), step_ns=pl.col("self_ns").sum(), single_ns=pl.col("self_ns").median()
    )  # fmt: skip
    means = sums.with_columns(pl.col("calls", "step_ns") / max(len(steps), 1), steps=pl.lit(len(steps)))
    longest = means.sort("step_ns", *_KEY, descending=[True, False, False], nulls_last=True).head(_MOST_ROWS).collect()
    size = sum((pl.col(name).str.len_bytes().fill_null(0) for name in _KEY), pl.lit(_BYTES_OF_FIGURES))
    return longest.filter((size.cum_sum() <= _MOST_BYTES) | (pl.int_range(pl.len()) == 0)).select(cast_columns(DURATIONS))
