"""What the host did while the device idled for it: in which phase, and in which operator or function of Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.analysis.device.idle import late_intervals
from steplens.analysis.steps.phases import PHASES, phase_intervals
from steplens.analysis.steps.training_thread import training_thread
from steplens.analysis.tools.once import once_per_trace
from steplens.analysis.tools.overlap import Int64Array, Intervals, intersect, length_inside, merged, subtract, union
from steplens.analysis.tools.schemas import table_schema
from steplens.trace.schema import SCOPE_BACKWARD, SCOPE_FUNCTION
from steplens.trace.trace import Trace

#: "<built-in method add of Tensor object at 0x7f...>": the same function for every object
_BUILT_IN = r"^<built-in (?:function|method) (?P<name>\w+)(?: of .*)?>$"
#: a node of autograd is found by its own name
_NODE = "autograd::engine::evaluate_function: "
_CALLS = table_schema("id, parent, name: String, start_ns, end_ns")


@dataclass(frozen=True)
class IdleActivity:
    """The largest part of what the host did while the device idled for it.

    Attributes:
        phase: of the training thread, one of ``steps.phases.PHASES``; empty where phases are not known.
        phase_share: its share of that time, 0 to 1.
        name: the function of Python, where its calls were recorded, else the operator, that itself ran for most of that time.
        name_share: its share of that time.
        behind: where no calls of Python were recorded, the operator behind which most of that time passed without any.
        behind_share: the share of that time that passed there.
    """

    phase: str = ""
    phase_share: float = 0.0
    name: str = ""
    name_share: float = 0.0
    behind: str = ""
    behind_share: float = 0.0


@dataclass(frozen=True)
class _LateActivity:
    """The same of one trace: how long it idled so, phase -> ns, and frames of name and self_ns."""

    length_ns: int
    phases: Mapping[str, int]
    functions: pl.DataFrame
    operators: pl.DataFrame
    behind: pl.DataFrame


@once_per_trace
def _late_activity(trace: Trace) -> _LateActivity | None:
    late = late_intervals(trace)
    if not len(late.start):
        return None
    functions, operators = self_inside(late, python_calls(trace)), self_inside(late, operator_calls(trace))
    return _LateActivity(late.length_ns, _phase_lengths(trace, late), functions, operators, _behind_operators(trace, late))


def idle_activity(traces: Sequence[Trace]) -> IdleActivity:
    """What the host did while the device idled for it, over the usual steps of some traces of a run.

    The time is that in which the task behind a gap had not been launched yet, without waits for data and for the device (see
    ``idle.late_intervals``). An operator or function has what of this time it ran itself, without the calls inside of it. What
    passed without an operator or a call of the runtime lies behind the operator that ended last (``names_before``).
    """
    lates = [late for trace in traces if (late := _late_activity(trace)) is not None]
    total = sum(late.length_ns for late in lates)
    if not total:
        return IdleActivity()
    phases = {phase: sum(late.phases.get(phase, 0) for late in lates) for phase in PHASES}
    phase = max(phases, key=lambda name: phases[name])
    name, name_ns = longest_name([late.functions for late in lates])
    name_behind, behind_ns = "", 0
    if not name:
        name, name_ns = longest_name([late.operators for late in lates])
        name_behind, behind_ns = longest_name([late.behind for late in lates])
    shares = [min(ns / total, 1.0) for ns in (phases[phase], name_ns, behind_ns)]
    return IdleActivity(phase if phases[phase] else "", shares[0], name, shares[1], name_behind, shares[2])


def names_before(trace: Trace, times_ns: Int64Array) -> pl.Series:
    """The operator that ended last before each of some moments, on whatever thread; null where none did.

    Of autograd the name of its node.
    """
    calls = operator_calls(trace).select("name", "end_ns").drop_nulls().sort("end_ns", maintain_order=True)
    last = np.searchsorted(calls["end_ns"].to_numpy(), times_ns, side="right") - 1
    names = calls["name"].cast(pl.String).str.strip_prefix(_NODE)
    before: pl.Series = names.gather(pl.Series(last).set(pl.Series(last < 0), None))
    return before


def _phase_lengths(trace: Trace, late: Intervals) -> dict[str, int]:
    phases = phase_intervals(trace)
    if phases is None or not phases.complete:
        return {}
    sets = (phases.data, phases.forward, phases.backward, phases.optimizer, phases.device_wait, phases.between)
    lengths = [intersect(late, intervals).length_ns for intervals in sets]
    return dict(zip(PHASES, [*lengths, late.length_ns - sum(lengths)], strict=True))


def python_calls(trace: Trace) -> pl.DataFrame:
    """The calls of Python functions on the training thread, columns as in ``self_inside``; none where they were not recorded."""
    thread = training_thread(trace)
    if thread is None or "python" not in trace:
        return pl.DataFrame(schema=_CALLS)
    frames = trace.required("python").filter(thread.is_own())
    return frames.select("id", "parent", "name", "start_ns", "end_ns").drop_nulls(["start_ns", "end_ns"]).collect()


def operator_calls(trace: Trace, *, of_thread: bool = False) -> pl.DataFrame:
    """The operator calls of all threads, or those of the training thread, columns as in ``self_inside``."""
    is_call = pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD])
    if of_thread:
        thread = training_thread(trace)
        is_call &= pl.lit(False) if thread is None else thread.is_own()
    return trace.required("ops").filter(is_call).select("id", "parent", "name", "start_ns", "end_ns").collect()


def _behind_operators(trace: Trace, late: Intervals) -> pl.DataFrame:
    """How much of intervals passed behind which operator while neither operators nor the runtime ran: name, self_ns."""
    runtime = trace.required("api").select("start_ns", "end_ns").drop_nulls().collect()
    quiet = subtract(late, union(merged(operator_calls(trace)), merged(runtime)))
    names = names_before(trace, quiet.start).alias("name")
    return pl.DataFrame({"name": names, "self_ns": quiet.end - quiet.start}).group_by("name").agg(pl.col("self_ns").sum())


def self_inside(intervals: Intervals, calls: pl.DataFrame) -> pl.DataFrame:
    """How long calls (id, parent, name, start_ns, end_ns) ran themselves inside of intervals, by name: name, self_ns."""
    inside_ns = length_inside(intervals, calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy())
    some = np.flatnonzero(inside_ns > 0)
    touched = calls[some].select("id", "parent", pl.col("name").cast(pl.String)).with_columns(inside=pl.Series(inside_ns[some]))
    children = touched.group_by(id="parent").agg(children=pl.col("inside").sum())
    selfs = touched.join(children.cast({"id": touched.schema["id"]}), on="id", how="left")
    self_ns = (pl.col("inside") - pl.col("children").fill_null(0)).clip(lower_bound=0)
    return selfs.group_by("name").agg(self_ns=self_ns.sum())


def longest_name(frames: Sequence[pl.DataFrame]) -> tuple[str, int]:
    """The name with the most ``self_ns`` of some frames (name, self_ns), and how much that is; empty and 0 without rows."""
    rows = pl.concat(frames).with_columns(pl.col("name").str.replace(_BUILT_IN, "${name} (built-in)"))
    sums = rows.group_by("name").agg(pl.col("self_ns").sum()).drop_nulls()
    row = next(sums.sort("self_ns", "name", descending=[True, False]).iter_rows(), None)
    return (row[0], row[1]) if row is not None else ("", 0)
