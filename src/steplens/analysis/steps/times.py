"""Every step with its length and its parts: what the host did, what the device did, and whether figures are of it."""

from __future__ import annotations

import polars as pl

from steplens.analysis.steps.choice import chosen_steps, incomplete_steps
from steplens.analysis.steps.device import FIGURES as DEVICE_FIGURES
from steplens.analysis.steps.device import PARTS, device_periods
from steplens.analysis.steps.device_work import device_parts, device_work
from steplens.analysis.steps.given_steps import given_steps
from steplens.analysis.steps.phases import FIGURES as HOST_FIGURES
from steplens.analysis.steps.phases import PHASES, host_phases, phase_intervals
from steplens.analysis.tools.once import once_per_trace
from steplens.analysis.tools.schemas import cast_columns
from steplens.trace.trace import Trace

COLUMNS = {
    **dict.fromkeys(("step", "start_ns", "duration_ns", "step_time_ns", *HOST_FIGURES), pl.Int64),
    **dict.fromkeys(("device_start_ns", "device_period_ns", *DEVICE_FIGURES), pl.Int64),
    **dict.fromkeys(("complete", "chosen"), pl.Boolean),
}
#: the parts of the host duration, in the order in which bars show them
HOST_PARTS = PHASES
#: the parts of the device period
DEVICE_PARTS = PARTS
_OF_PERIOD = {"device_start_ns": "start_ns", "device_period_ns": "period_ns"}
#: a device whose work ends later than this share of a step behind the step on the host runs behind
_BEHIND = 0.01


def step_times(trace: Trace, *, whole_trace_without_steps: bool = False) -> pl.DataFrame:
    """Times of every step, one row each, in ns; columns as in ``COLUMNS``.

    * ``duration_ns``: host duration, from mark to mark on the training thread; its phases (``HOST_PARTS``, which add up to it)
      are those of ``phases.host_phases``.
    * ``device_period_ns`` from ``device_start_ns`` and its parts (``DEVICE_PARTS``, which add up to it) are those of
      ``device.device_periods``; null for steps whose device work was not recorded. ``launched_*``: what the step launched.
    * ``step_time_ns``, the step time: the device period where the device runs behind the host (``runs_behind``), else the host
      duration.
    * ``complete``: recording holds the whole step; ``chosen``: figures of "a step" are of it (``choice.choose_steps``).

    Source: the ``steps``, ``ops``, ``api``, ``kernels`` and ``communication`` tables. Of a trace
    of which only results of another analysis are there, their figures of the device. A trace without steps gives no rows.

    Args:
        trace: one rank.
        whole_trace_without_steps: a trace without steps gives one row for all of it, ``step`` null.
    """
    if trace.once(_has_steps):
        return trace.once(times_of_steps)
    if trace.is_results_only:
        return trace.once(_of_given)
    whole_step = _whole_trace_times(trace) if whole_trace_without_steps else None
    return pl.DataFrame(schema=COLUMNS) if whole_step is None else whole_step


def _has_steps(trace: Trace) -> bool:
    """Whether steps were recorded."""
    steps = trace.steps
    return steps is not None and steps.height > 0


def _of_given(trace: Trace) -> pl.DataFrame:
    """The steps of a trace of which only results are there: what the device did, as the source computed it.

    Its Free is idle time with copies in it, and what lies in front of the first work (Preparing) is not part of the period.
    """
    steps = given_steps(trace).rename({"duration_ns": "whole_ns"})
    period = pl.sum_horizontal("computing_ns", "communication_not_overlapped_ns", "free_ns", ignore_nulls=False)
    missing = {name: pl.lit(None, dtype=dtype) for name, dtype in COLUMNS.items()}
    figures = {
        "step": pl.col("step"),
        "step_time_ns": pl.col("whole_ns"),
        "device_period_ns": period,
        "computing_ns": pl.col("computing_ns"),
        "exposed_communication_ns": pl.col("communication_not_overlapped_ns"),
        "exposed_copy_ns": pl.when(period.is_not_null()).then(0),
        "idle_ns": pl.col("free_ns"),
        "overlapped_communication_ns": pl.col("overlapped_ns"),
        "complete": pl.lit(True),
        "chosen": pl.lit(True),
    }
    values = {**missing, **figures}
    return steps.select(values[name].cast(dtype).alias(name) for name, dtype in COLUMNS.items())


@once_per_trace
def chosen_step_times(trace: Trace) -> pl.DataFrame:
    """The rows of ``step_times`` that figures of "a step" are of."""
    return step_times(trace).filter("chosen")


@once_per_trace
def runs_behind(trace: Trace) -> bool:
    """Whether the device runs behind the host: work of the chosen steps ends after them, by more than 1 % of a step (median)."""
    if not trace.has_accelerator:
        return False
    periods = device_periods(trace).select("step", "last_work_ns", "start_ns", "recorded")
    hosts = trace.required("steps").select("id", "start_ns", "end_ns").collect()
    steps = hosts.hstack(periods.select("last_work_ns", "recorded", device_start_ns="start_ns"))
    steps = steps.filter(pl.col("id").is_in(list(chosen_steps(trace).steps)) & pl.col("recorded"))
    if not steps.height:
        return False
    late = steps.select((pl.col("last_work_ns") - pl.col("end_ns")).median()).item()
    usual = steps.select((pl.col("end_ns") - pl.col("start_ns")).median()).item()
    # steps that the device itself marked begin with its work
    return bool(late > _BEHIND * usual)


def times_of_steps(trace: Trace) -> pl.DataFrame:
    """``step_times`` of the steps that were recorded."""
    if not trace.once(_has_steps):
        return pl.DataFrame(schema=COLUMNS)
    host = host_phases(trace)
    device = device_periods(trace).select("step", *DEVICE_FIGURES, **_OF_PERIOD)
    step_numbers = chosen_steps(trace).steps
    step_time_ns = pl.coalesce("device_period_ns", "duration_ns") if runs_behind(trace) else pl.col("duration_ns")
    incomplete = sorted(incomplete_steps(trace))
    times = host.hstack(device.drop("step"))
    return times.with_columns(
        step_time_ns=step_time_ns,
        complete=~pl.col("step").is_in(incomplete).fill_null(False),
        chosen=pl.col("step").is_in(list(step_numbers)).fill_null(False),
    ).select(cast_columns(COLUMNS))


def _whole_trace_times(trace: Trace) -> pl.DataFrame | None:
    """One row that spans all calls and device work, on the thread with the most calls; None where there is neither."""
    spans = [trace.required(table).select("start_ns", "end_ns") for table in ("ops", "kernels", "communication")]
    start, end = pl.concat(spans).select(pl.col("start_ns").min(), pl.col("end_ns").max()).collect().row(0)
    if start is None:
        return None
    row: dict[str, object] = {"start_ns": start, "duration_ns": end - start, "step_time_ns": end - start}
    row |= {"complete": True, "chosen": True}
    bounds = (pl.Series([start]).to_numpy(), pl.Series([end]).to_numpy())

    phases = phase_intervals(trace)
    if phases is not None:
        row |= {name: None if length is None else int(length[0]) for name, length in phases.lengths_inside(*bounds).items()}
    work = device_work(trace)
    if len(work.start_ns):
        first, last = int(work.start_ns.min()), int(work.end_ns.max())
        if not trace.has_accelerator:
            first, last = start, end
        parts = device_parts(trace)
        lengths = [int(part.length_ns) for part in (parts.computing, parts.communication, parts.copy)]
        row |= {"device_start_ns": first, "device_period_ns": last - first}
        row |= dict(zip(DEVICE_PARTS, [*lengths, last - first - sum(lengths)], strict=True))
        row["overlapped_communication_ns"] = parts.overlapped.length_ns
    return pl.DataFrame([{name: row.get(name) for name in COLUMNS}], schema=COLUMNS)
