"""The calls of one step as a tree, and when the device worked on what each launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.steps.phases import phase_intervals
from steplens.analysis.tools.overlap import clip
from steplens.trace.building.devices import cpu_is_device
from steplens.trace.trace import Trace

Numbers = npt.NDArray[np.int64]

_ROOT = -1
PHASES = ("data", "forward", "backward", "optimizer", "device_wait", "between")


@dataclass(frozen=True)
class StepCalls:
    """The calls of a step that begin in it; all arrays of shape (calls,), parents before what they call.

    Attributes:
        names: without numbers of steps and of calls of a range.
        start, end: ns from the begin of the step.
        parent: row of the call that made it, -1 for none.
        thread: 0 for the one with the most time of its own, then in that order.
        device_start, device_end: of the device tasks that it and what it calls launched, ns from that begin; -1 for none.
        phases: name, start and end of each stretch of a phase of the host, ns from the begin of the step.
    """

    names: Sequence[str]
    start: Numbers
    end: Numbers
    parent: Numbers
    thread: Numbers
    device_start: Numbers
    device_end: Numbers
    phases: Sequence[tuple[str, int, int]]

    def calls_by_caller(self) -> dict[int, list[int]]:
        """Rows by the row of the call that made them, in order of time; under -1 the outermost ones."""
        rows: dict[int, list[int]] = {}
        for row in np.lexsort((self.start, self.thread)).tolist():
            rows.setdefault(int(self.parent[row]), []).append(row)
        return rows


def read_step_calls(trace: Trace, start_ns: int, end_ns: int) -> StepCalls:
    """The calls that begin in a stretch of time.

    Args:
        trace: one rank.
        start_ns: begin of the step, Unix time.
        end_ns: its end.
    """
    columns = ("id", "name", "start_ns", "end_ns", "pid", "tid", "parent", "depth")
    is_inside = (pl.col("start_ns") >= start_ns) & (pl.col("start_ns") < end_ns)
    rows = trace.required("ops").filter(is_inside).select(*columns).drop_nulls(["start_ns", "end_ns"]).collect()
    # a range around the whole step is the step itself
    name = pl.col("name").cast(pl.String).fill_null("")
    rows = rows.with_columns(name=name).filter(~name.str.starts_with("ProfilerStep#"))
    rows = rows.with_columns(name=name.str.replace(r"#\d+$", "")).sort("depth", "start_ns")
    identifiers = rows["id"].to_numpy().astype(np.int64)
    start, end = (rows[column].to_numpy().astype(np.int64) - start_ns for column in ("start_ns", "end_ns"))
    parent = _find_rows(identifiers, rows["parent"].fill_null(_ROOT).to_numpy().astype(np.int64))
    device_start, device_end = _device_spans(trace, identifiers, parent, start_ns, end_ns)
    return StepCalls(
        names=rows["name"].to_list(),
        start=start,
        end=end,
        parent=parent,
        thread=_order_threads(rows, np.where(parent < 0, end - start, 0)),
        device_start=device_start,
        device_end=device_end,
        phases=_find_phases(trace, start_ns, end_ns),
    )


def _find_rows(identifiers: Numbers, wanted: Numbers) -> Numbers:
    """The row of each wanted identifier, -1 where there is none."""
    if not identifiers.size:
        return wanted
    order = np.argsort(identifiers)
    places = np.clip(np.searchsorted(identifiers, wanted, sorter=order), 0, identifiers.size - 1)
    rows = order[places]
    return np.where(identifiers[rows] == wanted, rows, _ROOT)


def _order_threads(rows: pl.DataFrame, outermost_ns: Numbers) -> Numbers:
    """The place of each call's thread among all, by how long its outermost calls take."""
    if not rows.height:
        return np.zeros(0, dtype=np.int64)
    sums = rows.select("pid", "tid").with_columns(ns=pl.Series(outermost_ns)).group_by("pid", "tid").agg(pl.col("ns").sum())
    ordered = sums.sort("ns", "pid", "tid", descending=[True, False, False]).with_row_index("thread").drop("ns")
    joined = rows.select("pid", "tid").join(ordered, on=["pid", "tid"], how="left", nulls_equal=True, maintain_order="left")
    return joined["thread"].to_numpy().astype(np.int64)


def _device_spans(trace: Trace, identifiers: Numbers, parent: Numbers, start_ns: int, end_ns: int) -> tuple[Numbers, Numbers]:
    """When the device tasks of each call and of what it calls begin and end."""
    none = np.iinfo(np.int64).max
    first, last = np.full(identifiers.size, none), np.full(identifiers.size, _ROOT)
    if trace.has_accelerator and not cpu_is_device(trace) and identifiers.size:
        tasks = (
            trace.required("kernels")
            .filter(pl.col("op").is_in(identifiers))
            .group_by("op")
            .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
            .drop_nulls()
            .collect()
        )
        rows = _find_rows(identifiers, tasks["op"].to_numpy().astype(np.int64))
        first[rows] = tasks["start_ns"].to_numpy() - start_ns
        last[rows] = tasks["end_ns"].to_numpy() - start_ns
        # what is called lies behind what calls it
        for row in range(identifiers.size - 1, -1, -1):
            if (caller := parent[row]) >= 0:
                first[caller] = min(first[caller], first[row])
                last[caller] = max(last[caller], last[row])
    return np.where(first == none, _ROOT, first), last


def _find_phases(trace: Trace, start_ns: int, end_ns: int) -> list[tuple[str, int, int]]:
    """The stretches of each phase in a step; those of one phase that follow each other are one."""
    intervals = phase_intervals(trace)
    if intervals is None:
        return []
    stretches = []
    for phase in PHASES:
        clipped = clip(getattr(intervals, phase), start_ns, end_ns)
        stretches += [
            (phase, int(low) - start_ns, int(high) - start_ns) for low, high in zip(clipped.start, clipped.end, strict=True)
        ]
    stretches.sort(key=lambda stretch: stretch[1:])
    joined: list[tuple[str, int, int]] = []
    for phase, low, high in stretches:
        if joined and joined[-1][0] == phase:
            joined[-1] = (phase, joined[-1][1], high)
        else:
            joined.append((phase, low, high))
    return joined
