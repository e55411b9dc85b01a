"""Where the host time of a step goes: each instant of the training thread is of one operator, or of the gap before one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.analysis.steps.host_calls import synchronising_calls
from steplens.analysis.steps.phases import HostPhases, phase_intervals
from steplens.analysis.steps.summary import usual_step_times
from steplens.analysis.steps.times import HOST_PARTS
from steplens.analysis.steps.training_thread import TrainingThread, records_host, training_thread
from steplens.analysis.tools.once import once_per_trace
from steplens.analysis.tools.overlap import (
    Int64Array,
    Intervals,
    intersect,
    length_inside,
    merge_intervals,
    merged,
    subtract,
    union,
)
from steplens.comparison.causes.calls import Calls, read_calls
from steplens.comparison.causes.trace_times import CALL, COLLECTIVE, GAP, WAIT, TraceTimes, collect_times
from steplens.trace.building.steps import step_of
from steplens.trace.schema import SCOPE_BACKWARD
from steplens.trace.trace import Trace

_BACKWARD = "backward_ns"
#: the phase of what no operator of the step follows
END = "end"


@once_per_trace
def host_times(trace: Trace) -> TraceTimes | None:
    """Host time of the usual steps of a trace by call; None where its operators were not recorded.

    A call has its self time: what lies in it and in no operator inside of it, on its thread. Of nodes of the backward pass on
    other threads counts what runs while the training thread itself runs no operator. What no operator covers is of the gap before
    the next outermost one of the step. The rows of a part of ``HOST_PARTS`` add up to it.
    """
    phases, thread = phase_intervals(trace), training_thread(trace)
    steps = usual_step_times(trace).drop_nulls(list(HOST_PARTS)).sort("start_ns")
    calls = read_calls(trace)
    if phases is None or thread is None or calls is None or not phases.complete or not steps.height:
        return None
    start = steps["start_ns"].to_numpy()
    stretches = _Stretches.of_phases(phases, Intervals(start, start + steps["duration_ns"].to_numpy()))
    usual_calls = _chosen_calls(trace, calls, thread, steps["step"])
    waits = merged(synchronising_calls(trace)) if trace.has_accelerator else _NOTHING
    frames = [
        *_call_frames(calls, usual_calls, stretches, waits),
        *_gap_frames(trace, calls, usual_calls, stretches, steps, waits),
    ]
    return collect_times(frames, calls)


_NOTHING = Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class _Stretches:
    """When the training thread is in which part of the usual steps; the parts are disjoint.

    Attributes:
        parts: of each of ``HOST_PARTS``.
        borders: where each stretch of any part begins and ends, in order of time.
        numbers: which of ``HOST_PARTS`` each stretch is of.
    """

    parts: dict[str, Intervals]
    borders: Intervals
    numbers: Int64Array

    @classmethod
    def of_phases(cls, phases: HostPhases, steps: Intervals) -> _Stretches:
        """The phases inside of steps, which are in order of time."""
        sets = (phases.data, phases.forward, phases.backward, phases.optimizer, phases.device_wait, phases.between)
        parts = {name: intersect(steps, intervals) for name, intervals in zip(HOST_PARTS, sets, strict=False)}
        covered = _NOTHING
        for intervals in sets:
            covered = union(covered, intervals)
        parts[HOST_PARTS[-1]] = intersect(steps, _subtract_from_steps(steps, covered))
        start, end = (np.concatenate([intervals[side] for intervals in parts.values()]) for side in range(2))
        numbers = np.repeat(np.arange(len(parts)), [len(intervals.start) for intervals in parts.values()])
        order = np.argsort(start, kind="stable")
        return cls(parts, Intervals(start[order], end[order]), numbers[order])

    def part_of_ranges(self, start: Int64Array, end: Int64Array) -> Int64Array:
        """Which of ``HOST_PARTS`` holds each range as a whole; -1 where none does."""
        place = np.maximum(np.searchsorted(self.borders.start, start, side="right") - 1, 0)
        is_inside = (start >= self.borders.start[place]) & (end <= self.borders.end[place])
        return np.where(is_inside, self.numbers[place], -1)


def _subtract_from_steps(steps: Intervals, covered: Intervals) -> Intervals:
    whole_calls = Intervals(steps.start[:1], steps.end[-1:])
    return subtract(whole_calls, covered)


@dataclass(frozen=True)
class _Chosen:
    """The operator calls of the usual steps on the training thread, and on other threads those of the backward pass.

    Attributes:
        threads: of each thread, the training thread first, the rows of ``Calls``, in order of their starts.
        own_cover: when any of them runs on the training thread. ``cover``: on any of the threads.
    """

    threads: tuple[Int64Array, ...]
    own_cover: Intervals
    cover: Intervals


def _chosen_calls(trace: Trace, calls: Calls, thread: TrainingThread, steps: pl.Series) -> _Chosen:
    rows = calls.rows
    is_chosen = rows["step"].is_in(steps.to_list()).fill_null(False).to_numpy() & calls.is_operator
    is_process = (rows["pid"] == thread.pid).fill_null(False).to_numpy()
    # a graph of MindSpore runs on threads of its own
    is_own = is_process & (rows["tid"] == thread.tid).fill_null(False).to_numpy() if records_host(trace) else is_process
    is_node = (rows["scope"] == SCOPE_BACKWARD).fill_null(False).to_numpy() & is_process & ~is_own
    other_threads = rows["tid"].filter(pl.Series(is_node)).value_counts(sort=True)["tid"].to_list()
    groups = [is_own, *(is_process & ~is_own & (rows["tid"] == tid).fill_null(False).to_numpy() for tid in other_threads)]
    threads = tuple(np.flatnonzero(is_chosen & group) for group in groups)
    covers = [merged(rows[group].select("start_ns", "end_ns")) for group in (threads[0], np.concatenate(threads))]
    return _Chosen(threads, *covers)


def _call_frames(calls: Calls, usual_calls: _Chosen, stretches: _Stretches, waits: Intervals) -> Iterator[pl.DataFrame]:
    every_start, every_end = (calls.rows[name].to_numpy() for name in ("start_ns", "end_ns"))
    covered = _NOTHING
    for number, rows in enumerate(usual_calls.threads):
        # most calls lie in one part, and so do all calls inside of them
        part = stretches.part_of_ranges(every_start[rows], every_end[rows]) if not number else np.full(len(rows), -1)
        whole_calls = rows[part >= 0]
        start, end = every_start[whole_calls], every_end[whole_calls]
        waited_ns = length_inside(waits, start, end) if len(waits.start) else np.zeros(len(whole_calls), dtype=np.int64)
        own_waited_ns = _own_lengths(calls, whole_calls, waited_ns)
        own_ns = _own_lengths(calls, whole_calls, end - start) - own_waited_ns
        frame = pl.DataFrame(
            {"call": whole_calls, "step": calls.rows["step"].gather(pl.Series(whole_calls)), "number": part[part >= 0]}
        )
        names = pl.Series(HOST_PARTS).gather(frame["number"])
        frame = frame.drop("number").with_columns(part=names, phase=names.str.strip_suffix("_ns"))
        yield frame.with_columns(ns=pl.Series(own_ns), calls=pl.lit(1.0), leaf=pl.lit(CALL), has_inputs=pl.lit(True))
        if len(waits.start):
            is_waiting = pl.Series(own_waited_ns > 0)
            waiting = frame.with_columns(ns=pl.Series(own_waited_ns), calls=pl.lit(1.0), leaf=pl.lit(WAIT))
            yield waiting.with_columns(has_inputs=pl.lit(False)).filter(is_waiting)
        across = rows[part < 0]
        if len(across):
            yield from _frames_across(calls, rows, across, stretches, waits, covered if number else None)
        covered = union(covered, merge_intervals(every_start[rows], every_end[rows]))


def _frames_across(
    calls: Calls, rows: Int64Array, across: Int64Array, stretches: _Stretches, waits: Intervals, covered: Intervals | None
) -> Iterator[pl.DataFrame]:
    """Calls that begin in one part and end in another, and those of other threads, as far as no ``covered`` runs."""
    is_across = np.zeros(len(calls.outer), dtype=bool)
    is_across[across] = True
    inner_calls = rows[(calls.outer[rows] >= 0) & is_across[np.maximum(calls.outer[rows], 0)]]
    near = np.union1d(across, inner_calls)
    start, end = (calls.rows[name].gather(pl.Series(near)).to_numpy() for name in ("start_ns", "end_ns"))
    is_own = is_across[near]
    for part, intervals in stretches.parts.items():
        if covered is not None and part != _BACKWARD:
            continue
        free = subtract(intervals, covered) if covered is not None else intervals
        begins = length_inside(intervals, start, start + 1) > 0
        own_waited_ns = _own_lengths(calls, near, length_inside(intersect(free, waits), start, end))
        own_ns = _own_lengths(calls, near, length_inside(free, start, end)) - own_waited_ns
        for leaf, ns in ((CALL, own_ns), (WAIT, own_waited_ns)):
            some = np.flatnonzero(is_own & ((ns > 0) | (begins & (leaf == CALL))))
            step = calls.rows["step"].gather(pl.Series(near[some]))
            counts = begins[some] if leaf == CALL else np.ones(len(some))
            columns = {"call": near[some], "step": step, "ns": ns[some], "calls": counts.astype(np.float64)}
            yield pl.DataFrame(columns).with_columns(
                part=pl.lit(part), phase=pl.lit(part.removesuffix("_ns")), leaf=pl.lit(leaf), has_inputs=pl.lit(leaf == CALL)
            )


def _own_lengths(calls: Calls, rows: Int64Array, lengths: Int64Array) -> Int64Array:
    """What of the length of each call is not of a call inside of it, on the same thread."""
    outer = calls.outer[rows]
    inner = np.bincount(outer[outer >= 0], weights=lengths[outer >= 0], minlength=len(calls.outer))
    return lengths - inner[rows].astype(np.int64)


def _gap_frames(
    trace: Trace, calls: Calls, usual_calls: _Chosen, stretches: _Stretches, steps: pl.DataFrame, waits: Intervals
) -> Iterator[pl.DataFrame]:
    """What no operator covers: by the outermost operator that comes next in the step, or by the collective that it waits for."""
    following = _Following.of_calls(calls, usual_calls, stretches)
    start = steps["start_ns"].to_numpy()
    spans = pl.DataFrame({"id": steps["step"], "start_ns": start, "end_ns": start + steps["duration_ns"].to_numpy()})
    operations = _host_collectives(trace)
    collectives = _NOTHING if operations is None else merged(operations)
    for part, intervals in stretches.parts.items():
        free = subtract(intervals, usual_calls.cover if part == _BACKWARD else usual_calls.own_cover)
        alone = subtract(free, waits)
        for leaf, gaps in ((WAIT, intersect(free, waits)), (GAP, subtract(alone, collectives))):
            if len(gaps.start):
                yield from following.gap_rows(gaps, part, leaf, spans)
        talking = intersect(alone, collectives)
        if operations is not None and len(talking.start):
            place = np.searchsorted(operations["start_ns"].to_numpy(), talking.start, side="right") - 1
            names = operations["name"].gather(pl.Series(np.maximum(place, 0)))
            columns = {"name": names, "step": step_of(talking.start, spans), "ns": talking.end - talking.start}
            yield pl.DataFrame(columns).with_columns(
                part=pl.lit(part), leaf=pl.lit(COLLECTIVE), phase=pl.lit(part.removesuffix("_ns")), calls=pl.lit(1.0)
            )


def _host_collectives(trace: Trace) -> pl.DataFrame | None:
    """The collectives that run on the host, in order of time; None where there are none, or a device runs them."""
    if trace.has_accelerator or "communication" not in trace:
        return None
    name = pl.coalesce(pl.col("operation").cast(pl.String), pl.col("name").cast(pl.String))
    rows = trace.required("communication").select("start_ns", "end_ns", name=name).drop_nulls(["start_ns", "end_ns"])
    frame = rows.sort("start_ns").collect()
    return frame if frame.height else None


@dataclass(frozen=True)
class _Following:
    """The outermost operators of the usual steps, in order of time: rows of ``Calls``, and the part in which each begins."""

    calls: Calls
    rows: Int64Array
    starts: Int64Array
    part: Int64Array

    @classmethod
    def of_calls(cls, calls: Calls, usual_calls: _Chosen, stretches: _Stretches) -> _Following:
        """Those of all threads."""
        all_rows = np.concatenate(usual_calls.threads)
        rows = all_rows[calls.outer[all_rows] < 0]
        rows = rows[np.argsort(calls.rows["start_ns"].to_numpy()[rows], kind="stable")]
        starts = calls.rows["start_ns"].to_numpy()[rows]
        part = np.full(len(rows), len(HOST_PARTS) - 1)
        for number, intervals in enumerate(stretches.parts.values()):
            part[length_inside(intervals, starts, starts + 1) > 0] = number
        return cls(calls, rows, starts, part)

    def gap_rows(self, gaps: Intervals, part: str, leaf: str, steps: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Gaps by the operator behind each; those that none of the step follows end it."""
        ns, step = gaps.end - gaps.start, step_of(gaps.start, steps)
        place = np.searchsorted(self.starts, gaps.start, side="left")
        has_next = place < len(self.starts)
        place = np.minimum(place, max(len(self.starts) - 1, 0))
        if len(self.starts):
            has_next &= (step_of(self.starts[place], steps) == step).fill_null(False).to_numpy()
            for number, own_part in enumerate(HOST_PARTS):
                some = has_next & (self.part[place] == number)
                if some.any():
                    columns = {"call": self.rows[place[some]], "step": step.filter(pl.Series(some)), "ns": ns[some]}
                    yield pl.DataFrame(columns).with_columns(
                        part=pl.lit(part), phase=pl.lit(own_part.removesuffix("_ns")), leaf=pl.lit(leaf), calls=pl.lit(1.0),
                        has_inputs=pl.lit(False),
                    )  # fmt: skip
        if not has_next.all():
            last = np.flatnonzero(~has_next)
            yield pl.DataFrame({"step": step.gather(pl.Series(last)), "ns": ns[last]}).with_columns(
                part=pl.lit(part), leaf=pl.lit(leaf), phase=pl.lit(END), calls=pl.lit(1.0)
            )
