"""What the host did in each step: the phases of the training thread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.analysis.steps.backward import backward_passes
from steplens.analysis.steps.device_work import COMMUNICATION, device_work
from steplens.analysis.steps.host_calls import HostCalls, host_calls, outermost_calls, synchronising_calls
from steplens.analysis.tools.once import once_per_trace
from steplens.analysis.tools.overlap import Int64Array, Intervals, intersect, length_inside, merged, subtract, union
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.building.steps import step_of
from steplens.trace.schema import SCOPE_BACKWARD
from steplens.trace.trace import Trace

DATA, FORWARD, BACKWARD, OPTIMIZER = "data", "forward", "backward", "optimizer"
DEVICE_WAIT, BETWEEN, PYTHON = "waiting for the device", "between", "python"

#: the columns that add up to the host duration; gradient synchronisation is a part of backward
PHASES = (
    "data_wait_ns", "forward_ns", "backward_ns", "optimizer_ns", "device_wait_ns", "between_ns", "python_ns",
)  # fmt: skip

#: the figures of a step: the phases, and of backward what it spends on gradients
FIGURES = (*PHASES[:3], "gradient_sync_ns", *PHASES[3:])
COLUMNS = dict.fromkeys(("step", "start_ns", "duration_ns", *FIGURES), pl.Int64)

_ORDER = (DATA, FORWARD, BACKWARD, OPTIMIZER, DEVICE_WAIT, BETWEEN)

NAMES = table_schema("step, phase: String, name: String, calls, time_ns")


@dataclass(frozen=True)
class HostPhases:
    """When the training thread was in which phase; the sets are disjoint. In no phase is Python: no operator runs.

    Attributes:
        data: it waits for the loader.
        forward, backward, optimizer: see ``host_phases``.
        gradient_sync: the part of backward in which it waits for gradients of other ranks.
        device_wait: outside of these, calls that wait for the device.
        between: outside of all these, operators.
        complete: whether operators of the thread were recorded. If not, only the phases that ranges or runtime calls tell of are
            known, and the rest of a step is not told apart.
    """

    data: Intervals
    forward: Intervals
    backward: Intervals
    gradient_sync: Intervals
    optimizer: Intervals
    device_wait: Intervals
    between: Intervals
    complete: bool

    def lengths_inside(self, start: Int64Array, end: Int64Array) -> dict[str, Int64Array | None]:
        """How long each phase, and gradient synchronisation, lasts inside of each range, ns; None where that is not known."""
        sets = (self.data, self.forward, self.backward, self.optimizer, self.device_wait, self.between)
        all_ns = [length_inside(intervals, start, end) for intervals in sets]
        lengths: dict[str, Int64Array | None] = dict(zip(PHASES, [*all_ns, end - start - sum(all_ns)], strict=True))
        lengths["gradient_sync_ns"] = length_inside(self.gradient_sync, start, end)
        if not self.complete:
            unknown = [name for name, intervals in zip(PHASES, sets, strict=False) if not len(intervals.start)]
            lengths.update(dict.fromkeys((*unknown, "between_ns", "python_ns")))
            if "backward_ns" in unknown:
                lengths["gradient_sync_ns"] = None
        return lengths


@once_per_trace
def host_phases(trace: Trace) -> pl.DataFrame:
    """The phases of the host duration of every step, one row per step in the order of ``steps``; ns, columns as in ``COLUMNS``.

    The range of the step on its thread, the training thread, is cut into phases that add up to ``duration_ns`` exactly:

    * ``data_wait_ns``: waiting for the data loader (ranges ``enumerate(DataLoader)#...``);
    * ``forward_ns``: for each pair of forward and backward, from the first forward operator to the beginning of backward, the
      loss and gaps included. Forward operators lie inside the outermost module call or a range that says so
      (``DistributedDataParallel.forward``, ``## forward ##``); where there are none, the first is the first operator that a node
      of the backward pass answers to, by sequence number. A pair begins behind the last backward pass, optimizer step and wait
      for data. Calls of the model without a backward pass (validation, inference) are forward, too;
    * ``backward_ns``: from the call of backward until it returns, gaps and what checkpointing computes again included.
      ``gradient_sync_ns`` of it: nothing of backward runs, and a collective is in flight;
    * ``optimizer_ns``: ``Optimizer.step`` without the forward and backward of its closure;
    * ``device_wait_ns``: outside of these, calls that wait for the device (reading a tensor's value, synchronising);
    * ``between_ns``: other operators (augmentation, clipping, metrics); see ``host_phase_names`` for which;
    * ``python_ns``: no operator runs.

    Null where the trace holds no calls of the host. Where it holds calls, but no operator of the training thread (MindSpore's
    launches outside of graphs are made by other threads and do not say what they are part of), phases that no range and no
    runtime call tells of are null, never 0: the known ones do not add up to ``duration_ns`` then.

    Source: ``ops``, ``api``, ``python``, ``communication``, ``steps``; unsafe where health reports lost or overlapping calls.
    """
    steps = trace.required("steps").select("id", "start_ns", "end_ns").collect()
    phases = phase_intervals(trace)
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    lengths: dict[str, Int64Array | None] = dict.fromkeys((*PHASES, "gradient_sync_ns"))
    if phases is not None:
        lengths = phases.lengths_inside(start, end)
    frame = pl.DataFrame({"step": steps["id"], "start_ns": start, "duration_ns": end - start})
    missing = pl.lit(None, dtype=pl.Int64)
    values = [missing.alias(name) if length is None else pl.Series(name, length) for name, length in lengths.items()]
    return frame.with_columns(values).select(cast_columns(COLUMNS))


@once_per_trace
def phase_intervals(trace: Trace) -> HostPhases | None:
    """When the training thread was in which phase, over the whole trace; None where the trace holds no calls of the host."""
    calls = host_calls(trace)
    if calls is None:
        return None
    passes = backward_passes(trace, calls)
    data = calls.data
    forward = subtract(_forward_intervals(calls, passes), data)
    backward = subtract(passes, data)
    forward = subtract(forward, backward)
    optimizer = subtract(subtract(calls.optimizer, union(forward, backward)), data)
    in_phases = union(union(data, forward), union(backward, optimizer))
    waits = subtract(calls.device_waits, in_phases)
    between = subtract(calls.operators, union(in_phases, waits))
    work = device_work(trace)
    synchronising = intersect(subtract(backward, calls.runs_in_backward), work.intervals(COMMUNICATION))
    return HostPhases(data, forward, backward, synchronising, optimizer, waits, between, calls.complete)


def _forward_intervals(calls: HostCalls, passes: Intervals) -> Intervals:
    """From the first forward operator of each pair to the beginning of its backward pass, and calls of the model without one."""
    begins = _forward_begins(calls, passes)
    has_forward = begins < passes.start
    pairs = Intervals(begins[has_forward], passes.start[has_forward])
    if len(calls.model.start):
        return union(pairs, subtract(calls.model, passes))
    if len(passes.start):
        return pairs
    # nothing says what belongs to the model: all operators between two waits do
    return calls.inference


def _forward_begins(calls: HostCalls, passes: Intervals) -> Int64Array:
    """When the forward of each backward pass begins; the beginning of the pass where it has none."""
    behind = np.r_[np.iinfo(np.int64).min, passes.end[:-1]] if len(passes.start) else passes.start
    for ends in (calls.step_starts, calls.data.end, calls.optimizer_ends, calls.closure_starts):
        ordered = np.sort(ends)
        place = np.searchsorted(ordered, passes.start, side="right") - 1
        if len(ordered):
            behind = np.maximum(behind, np.where(place >= 0, ordered[np.maximum(place, 0)], behind))
    begins: Int64Array = passes.start.copy()
    witnesses = [starts for starts in (calls.answered_starts, calls.model_starts) if len(starts)]
    # the later kind of witness is the better one
    for candidates in witnesses or [calls.operator_starts]:
        place = np.searchsorted(candidates, behind, side="left")
        first = candidates[np.minimum(place, len(candidates) - 1)] if len(candidates) else begins
        begins = np.where((place < len(candidates)) & (first < passes.start), first, begins)
    return np.asarray(begins, dtype=np.int64)


def host_phase_names(trace: Trace) -> pl.DataFrame:
    """What the training thread called between its phases, and while it waited for the device: a row per step, phase and name.

    ``time_ns`` of the outermost operator call, or runtime call, as far as it lies in the phase; per step and phase the times
    add up to ``device_wait_ns`` and ``between_ns`` of ``host_phases``. Longest first within a step and phase; ``calls``: how
    many.
    """
    phases = phase_intervals(trace)
    steps = trace.required("steps").select("id", "start_ns", "end_ns").collect()
    if phases is None or not steps.height:
        return pl.DataFrame(schema=NAMES)
    operators, runtime = outermost_calls(trace), synchronising_calls(trace)
    covered = merged(operators)
    frames = []
    for phase, intervals in ((DEVICE_WAIT, phases.device_wait), (BETWEEN, phases.between)):
        alone = subtract(intervals, covered)
        for calls, intervals_inside in ((operators, intervals), (runtime, alone)):
            start, end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
            times = length_inside(intervals_inside, start, end)
            some = np.flatnonzero(times > 0)
            if len(some):
                columns = {"name": calls["name"][some].cast(pl.String), "time_ns": times[some]}
                of_phase = pl.Series([phase]).new_from_index(0, len(some))
                frames.append(pl.DataFrame({**columns, "phase": of_phase, "step": step_of(start[some], steps)}))
    if not frames:
        return pl.DataFrame(schema=NAMES)
    return (
        pl.concat(frames)
        .lazy()
        .drop_nulls("step")
        .group_by("step", "phase", "name")
        .agg(calls=pl.len().cast(pl.Int64), time_ns=pl.col("time_ns").sum())
        .sort("step", "phase", "time_ns", "name", descending=[False, False, True, False])
        .select(cast_columns(NAMES))
        .collect()
    )


@once_per_trace
def phase_of_calls(trace: Trace) -> pl.Series:
    """Phase of every row of ``ops``: what the training thread was doing when the call began.

    DATA, FORWARD, BACKWARD, OPTIMIZER or DEVICE_WAIT as in ``host_phases``; BETWEEN for calls in none of them, also of other
    threads. Calls of autograd are of backward wherever they run.
    """
    calls = trace.required("ops").select("start_ns", "scope").collect()
    phases = phase_intervals(trace)
    start = calls["start_ns"].to_numpy()
    phase_index = np.full(calls.height, _ORDER.index(BETWEEN))
    if phases is not None:
        sets = (phases.data, phases.forward, phases.backward, phases.optimizer, phases.device_wait)
        for number, intervals in enumerate(sets):
            phase_index[length_inside(intervals, start, start + 1) > 0] = number
    phase_index[(calls["scope"] == SCOPE_BACKWARD).fill_null(False).to_numpy()] = _ORDER.index(BACKWARD)
    names: pl.Series = pl.Series("phase", _ORDER, dtype=pl.String).gather(phase_index)
    return names
