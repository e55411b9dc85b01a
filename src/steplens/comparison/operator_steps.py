"""How long an operator takes in each step of a recording, and how sure a difference of it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from steplens.comparison.difference import Difference, find_difference
from steplens.comparison.noise import LEAST_STEPS, Floats, Sample, sample_mean
from steplens.comparison.recordings import Recording, number_windows
from steplens.trace.trace import Trace

SELF, DEVICE = "self_ns", "device_self_ns"
#: of single operators processes differ by more than of whole steps: where the memory lies that they touch, decides much
_OF_OPERATORS = 2.0


@dataclass(frozen=True)
class OperatorChange:
    """What became of an operator's time per step, ns.

    Attributes:
        before_ns: mean over the recordings; ``after_ns``: of the later side.
        difference: None where a side has too few steps to tell.
    """

    before_ns: float
    after_ns: float
    difference: Difference | None


def compare_operator(before: Sequence[Recording], after: Sequence[Recording], name: str, time: str = "") -> OperatorChange:
    """How an operator's time per step differs.

    Args:
        before: the recordings of the earlier side.
        after: those of the later one.
        name: of the operator, such as "aten::mm".
        time: SELF or DEVICE; by default that of the device where a side has any, else self time.
    """
    column = time or (DEVICE if any(operator_times(recording, name, DEVICE).any() for recording in (*before, *after)) else SELF)
    values = [[operator_times(recording, name, column) for recording in side] for side in (before, after)]
    first_ns, second_ns = (float(np.mean([times.mean() for times in side if times.size] or [0.0])) for side in values)
    samples = [
        [
            _sample_operator(times, recording)
            for times, recording in zip(side, recordings, strict=True)
            if times.size >= LEAST_STEPS
        ]
        for side, recordings in zip(values, (before, after), strict=True)
    ]
    is_told = bool(samples[0] and samples[1])
    difference = find_difference(samples[0], samples[1], unit=max(first_ns, second_ns)) if is_told else None
    return OperatorChange(first_ns, second_ns, difference)


def _sample_operator(times: Floats, recording: Recording) -> Sample:
    sample = sample_mean(times, recording.waited_share or 0.0)
    return replace(sample, spread=_OF_OPERATORS * sample.spread)


def operator_times(recording: Recording, name: str, column: str) -> Floats:
    """Time of an operator's calls in each usual step, ns, shape (steps,): mean over the ranks, 0 where a step has none."""
    numbered = zip(recording.traces, number_windows(recording.traces), strict=True)
    calls = [_calls_of(trace, name).with_columns(window=pl.lit(window)) for trace, window in numbered if "ops" in trace]
    if not calls:
        return np.zeros(0)
    keys = ["window", "step"]
    by_step = pl.concat(calls).with_columns(pl.col("window").cast(pl.Int64)).group_by(keys).agg(time_ns=pl.col(column).sum())
    ranks = len({trace.rank for trace in recording.traces})
    joined = recording.usual.select(keys).join(by_step, on=keys, how="left", maintain_order="left")
    return joined["time_ns"].fill_null(0).to_numpy().astype(np.float64) / ranks


def _calls_of(trace: Trace, name: str) -> pl.DataFrame:
    is_named = (pl.col("name").cast(pl.String) == name) & pl.col("step").is_not_null()
    columns = (pl.col("step").cast(pl.Int64), pl.col(SELF, DEVICE).cast(pl.Int64))
    return trace.required("ops").filter(is_named).select(*columns).collect()
