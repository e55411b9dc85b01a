"""What the timeline shows first: one complete step of the rank that the verdict names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.analysis.steps.basis import step_basis
from steplens.analysis.verdict_words import Verdict
from steplens.server.runs import OpenedRun
from steplens.server.timeline import models
from steplens.trace.building.devices import cpu_is_device
from steplens.trace.trace import Trace

#: a step's device work that ends later than this many of its lengths behind its start is not followed: details would be lost
_MOST_LENGTHS = 2.0


def first_view(chosen: OpenedRun, trace: int | None) -> models.FirstView | None:
    """The step to show first; None where no trace has a complete one.

    Args:
        chosen: the run.
        trace: whose step; the one of the verdict's rank where it names one, else the first that has steps, when None.
    """
    numbers = list(range(len(chosen.run.traces))) if trace is None else [trace]
    if trace is None and len(numbers) > 1:
        # the verdict of a single trace names no rank
        verdict: Verdict = chosen.answer(("verdict",), chosen.run.verdict)
        numbers.sort(key=lambda number: verdict.rank is None or chosen.trace(number).rank != verdict.rank)
    for number in numbers:
        usual = usual_step(chosen.trace(number))
        if usual is not None:
            origin = chosen.origins[number]
            begin_ns, end_ns = usual.start_ns - origin, usual.device_end_ns - origin
            return models.FirstView(trace=number, step=usual.step, start_ns=begin_ns, end_ns=end_ns)
    return None


@dataclass(frozen=True)
class StepSpan:
    """A step and where it lies, Unix ns.

    Attributes:
        step: its number.
        start_ns, end_ns: from mark to mark on the host.
        device_end_ns: end of the last device task that it launched, where that is later than its own end and not far away; else
            its own.
    """

    step: int
    start_ns: int
    end_ns: int
    device_end_ns: int


def usual_step(trace: Trace) -> StepSpan | None:
    """The step whose length is nearest to the median of those that figures of the device are of."""
    steps = trace.required("steps").select("id", "start_ns", "end_ns").drop_nulls().collect()
    basis = step_basis(trace)
    # a step of which the device's work was not recorded would open on empty tracks
    rows = steps.filter(pl.col("id").is_in(list(basis.device_steps or basis.steps))).sort("start_ns")
    if not rows.height:
        return None
    length = (rows["end_ns"] - rows["start_ns"]).to_numpy()
    # of an even number the lower of the two in the middle, so that one of the steps has this length
    place = int(np.argmin(np.abs(length - np.sort(length)[(len(length) - 1) // 2])))
    step, start, end = rows.row(place)
    device_end = end
    if trace.has_accelerator and not cpu_is_device(trace):
        ends = trace.required("kernels").filter(pl.col("step") == step).select(pl.col("end_ns").max()).collect().item()
        if ends is not None and ends <= start + _MOST_LENGTHS * (end - start):
            device_end = max(end, ends)
    return StepSpan(step, start, end, device_end)
