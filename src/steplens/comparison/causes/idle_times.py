"""Idle time of the device in each usual step: of the task that ends it, of what the host did meanwhile, or of its wait before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.device import idle
from steplens.analysis.device.idle import StepGaps, step_gaps
from steplens.analysis.steps.host_calls import synchronising_calls
from steplens.analysis.steps.times import DEVICE_PARTS
from steplens.analysis.steps.training_thread import training_thread
from steplens.analysis.tools.overlap import Int64Array
from steplens.comparison.causes.calls import NO_CALL, SEPARATOR, Calls
from steplens.comparison.causes.trace_times import DRAINED_TIME, IDLE_TIME
from steplens.trace.trace import Trace

_IDLE = DEVICE_PARTS[3]
#: clocks of host and device differ by less
_CLOCKS_APART_NS = 10_000
#: of threads that launch tasks only so many are looked at, those that launch most first
_MOST_THREADS = 16


def idle_frames(
    trace: Trace, tasks: pl.DataFrame, calls: Calls | None, phases: pl.Series, steps: pl.Series
) -> Iterator[pl.DataFrame]:
    """Idle time by what held the task back that ends it (``idle.idle_causes``), for ``trace_times.collect_times``.

    Time in which the host runs an operator is of that one, the one that runs longest; else it is of the task that follows. Where
    the host had just waited for the device, so that it had nothing launched, the row is one of ``DRAINED_TIME``.

    Args:
        trace: of one rank.
        tasks: start_ns, sorted, and op: what occupies the device.
        calls: of the trace.
        phases: of each call.
        steps: the usual ones.
    """
    gaps = step_gaps(trace)
    if gaps is None:
        return
    is_chosen = pl.Series(gaps.step).is_in(steps.to_list()).to_numpy()
    following = _following_calls(gaps, tasks, calls)
    running = _longest_running(trace, gaps, following, calls)
    waited = _Waits(trace, calls, phases).before_gaps(gaps)
    for cause, lengths in gaps.length_by_cause.items():
        some = np.flatnonzero(is_chosen & (lengths > 0))
        if not len(some):
            continue
        call = np.where(running >= 0, running, following)[some] if cause == idle.CALLS else following[some]
        is_drained = waited[some] != "" if cause in (*idle.HOST_CAUSES, idle.SYNCHRONIZATION) else np.zeros(len(some), dtype=bool)
        frame = pl.DataFrame({"step": gaps.step[some], "ns": lengths[some], "call": call, "phase": _phase_of(call, phases)})
        detail = np.where(is_drained, (cause + SEPARATOR) + waited[some], cause)
        yield frame.with_columns(
            calls=pl.lit(1.0), detail=pl.Series(detail, dtype=pl.String), part=pl.lit(_IDLE), has_inputs=pl.lit(False),
            leaf=pl.Series(np.where(is_drained, DRAINED_TIME, IDLE_TIME), dtype=pl.String),
        )  # fmt: skip


def _phase_of(call: Int64Array, phases: pl.Series) -> pl.Series:
    if not len(phases):
        return pl.repeat("", len(call), eager=True)
    phase: pl.Series = phases.gather(pl.Series(call).set(pl.Series(call < 0), None))
    return phase


def _following_calls(gaps: StepGaps, tasks: pl.DataFrame, calls: Calls | None) -> Int64Array:
    """Of each gap the outermost operator that launched the task behind it; -1 where none is known."""
    if calls is None or not tasks.height:
        return np.full(len(gaps.step), NO_CALL, dtype=np.int64)
    place = np.minimum(np.searchsorted(tasks["start_ns"].to_numpy(), gaps.ends_ns, side="left"), tasks.height - 1)
    op = tasks["op"].gather(pl.Series(place))
    row = op.set(~op.is_between(0, calls.rows.height - 1).fill_null(False), None).fill_null(NO_CALL).to_numpy().astype(np.int64)
    return _outermost_calls(row, calls)


def _outermost_calls(row: Int64Array, calls: Calls) -> Int64Array:
    top = calls.top[np.maximum(row, 0)]
    return np.where((row >= 0) & (top >= 0), top, row)


def _longest_running(trace: Trace, gaps: StepGaps, following: Int64Array, calls: Calls | None) -> Int64Array:
    """Of each gap the outermost operator that runs longest in it until the next task is launched; -1 where none does."""
    running = np.full(len(gaps.step), NO_CALL, dtype=np.int64)
    if calls is None or not len(running):
        return running
    thread = training_thread(trace)
    rows = calls.rows
    is_outermost = calls.is_operator & (calls.top == np.arange(rows.height))
    pid, tid = (rows[name].fill_null(-1).to_numpy() for name in ("pid", "tid"))
    of_following = np.maximum(following, 0)
    launching = Counter(zip(pid[of_following][following >= 0].tolist(), tid[of_following][following >= 0].tolist(), strict=True))
    # what the launching thread does comes first, and then what the training thread does, which waits for it
    for (own_pid, own_tid), _ in launching.most_common(_MOST_THREADS):
        ops = np.flatnonzero(is_outermost & (pid == own_pid) & (tid == own_tid))
        mask = (following >= 0) & (pid[of_following] == own_pid) & (tid[of_following] == own_tid)
        running[mask] = _most_overlapping(rows, ops, gaps.start_ns[mask], gaps.launched_ns[mask])
    left = running < 0
    if thread is not None and left.any():
        ops = np.flatnonzero(is_outermost & (pid == thread.pid) & (tid == thread.tid))
        running[left] = _most_overlapping(rows, ops, gaps.start_ns[left], gaps.launched_ns[left])
    return running


def _most_overlapping(rows: pl.DataFrame, ops: Int64Array, start: Int64Array, end: Int64Array) -> Int64Array:
    """Of each range [start, end) the row of ``ops`` that covers most of it; -1 where none does."""
    own_rows = rows[ops].select("start_ns", "end_ns")
    order = np.argsort(own_rows["start_ns"].to_numpy(), kind="stable")
    ops, op_start, op_end = ops[order], own_rows["start_ns"].to_numpy()[order], own_rows["end_ns"].to_numpy()[order]
    # operators of a thread lie behind each other; of a damaged source only such are looked at
    is_behind = op_start >= np.maximum.accumulate(np.r_[op_start[:1], op_end[:-1]])
    ops, op_start, op_end = ops[is_behind], op_start[is_behind], op_end[is_behind]
    first = np.searchsorted(op_end, start, side="right")
    count = np.maximum(np.searchsorted(op_start, end, side="left") - first, 0)
    number = np.repeat(np.arange(len(start)), count)
    op = np.arange(len(number)) + np.repeat(first - np.cumsum(count) + count, count)
    overlap = np.minimum(op_end[op], end[number]) - np.maximum(op_start[op], start[number])
    longest = np.full(len(start), NO_CALL, dtype=np.int64)
    # the last one written is the longest
    by_length = np.argsort(overlap, kind="stable")
    longest[number[by_length]] = ops[op[by_length]]
    return longest


class _Waits:
    """When the training thread waits for the device, and in which operator."""

    def __init__(self, trace: Trace, calls: Calls | None, phases: pl.Series) -> None:
        waits = synchronising_calls(trace).sort("start_ns")
        self.start_ns, end_ns = waits["start_ns"].to_numpy(), waits["end_ns"].to_numpy()
        self.end_ns = np.maximum.accumulate(end_ns) if len(end_ns) else end_ns
        self.names = self._names_of(trace, waits, calls, phases)

    def _names_of(self, trace: Trace, waits: pl.DataFrame, calls: Calls | None, phases: pl.Series) -> npt.NDArray[np.object_]:
        """Of each wait the outermost operator around it, else the call of the runtime, and the phase it is in."""
        names = waits["name"].cast(pl.String).to_numpy().astype(object)
        phase = np.full(len(names), "", dtype=object)
        thread = training_thread(trace)
        if calls is not None and thread is not None and len(names):
            rows = calls.rows
            is_own = (rows["pid"] == thread.pid).fill_null(False) & (rows["tid"] == thread.tid).fill_null(False)
            ops = np.flatnonzero(is_own.to_numpy() & calls.is_operator & (calls.top == np.arange(rows.height)))
            around = _most_overlapping(rows, ops, self.start_ns, self.start_ns + 1)
            has_call = around >= 0
            names[has_call] = rows["name"].gather(pl.Series(around[has_call])).cast(pl.String).fill_null("").to_numpy()
            phase[has_call] = phases.gather(pl.Series(around[has_call])).fill_null("").to_numpy()
        joined: npt.NDArray[np.object_] = names + SEPARATOR + phase
        return joined

    def before_gaps(self, gaps: StepGaps) -> npt.NDArray[np.object_]:
        """Of each gap in which the host was late the wait that ended when the device had done all, as name and phase, else ""."""
        waited = np.full(len(gaps.step), "", dtype=object)
        if not len(self.start_ns):
            return waited
        place = np.searchsorted(self.start_ns, gaps.begins_ns, side="right") - 1
        ended = self.end_ns[np.maximum(place, 0)]
        is_drained = (place >= 0) & (ended >= gaps.begins_ns - _CLOCKS_APART_NS) & (gaps.launched_ns > gaps.start_ns)
        is_drained &= ended <= gaps.launched_ns + _CLOCKS_APART_NS
        waited[is_drained] = self.names[place[is_drained]]
        return waited
