"""Why a rank comes late to its collectives: what it does longer than the others between one message and the next."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.analysis.cluster.arrivals import waits_of_rank
from steplens.analysis.cluster.rank_differences import rank_differences
from steplens.analysis.device.idle import DATA, idle_causes
from steplens.analysis.device.idle_activity import operator_calls, python_calls, self_inside
from steplens.analysis.steps.host_calls import COMMUNICATION_NAME
from steplens.analysis.steps.phases import PHASES, HostPhases, phase_intervals
from steplens.analysis.steps.summary import usual_device_steps, usual_step_times
from steplens.analysis.tools import names
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.overlap import Intervals, intersect, merge_intervals, merged, subtract
from steplens.analysis.tools.parallel import by_rank, layout
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import STEP_PREFIX
from steplens.trace.trace import Trace

#: part is a column of step times; ``more_ns`` is what the rank has beyond the others
PARTS = table_schema("part: String, own_ns: Float64, other_ns: Float64, more_ns: Float64")
#: kind is OPERATOR or FUNCTION
CALLS = table_schema("kind: String, name: String, own_ns: Float64, other_ns: Float64, more_ns: Float64")
OPERATOR, FUNCTION = "operator", "function"

_DATA, _IDLE = "data_wait_ns", "idle_ns"
#: parts of an accelerator's period in which it works by itself; what it communicates may be waiting for others
_WORK = ("computing_ns", "exposed_copy_ns")
_SELF_TIMES = table_schema("kind: String, name: String, self_ns")
_ENGINE = "autograd::engine::evaluate_function: "


def peers_of(traces: Sequence[Trace], rank: int) -> list[int]:
    """The ranks that a rank is compared with: the others of its stage in a pipeline, which do the same; else all others."""
    ranks = by_rank(traces)
    if rank not in ranks:
        return []
    job = layout(traces)
    other_ranks = [number for number in ranks if number != rank]
    return [number for number in other_ranks if job.stage_of(number) == job.stage_of(rank)] or other_ranks


def with_peers(traces: Sequence[Trace], rank: int) -> list[Trace]:
    """The traces of a rank and of those that it is compared with."""
    compared = {rank, *peers_of(traces, rank)}
    return [trace for trace in traces if trace.rank in compared]


def late_parts(traces: Sequence[Trace], rank: int) -> pl.DataFrame:
    """The parts of a step that take a rank longer than the others, without waiting in collectives; most beyond them first.

    A step has what a rank does between its messages, and its waits in them for the last rank. Ranks that meet in collectives have
    equally long steps: by so much as the others wait for a late rank it does something longer. What that is, the parts without
    waits tell; with them, a part in which the others wait (the forward pass whose buffers DistributedDataParallel sends around)
    would hide it.

    Where the CPU is the device these are the phases of the host (``steps.phases.PHASES``). A rank waits in a phase while a
    collective of it waits for the last rank (``arrivals``) and no operator without others inside runs on its training thread.
    On an accelerator they are computing, exposed copies, and idle time: that in which the loader is waited for (as
    ``data_wait_ns``) and all other (as ``idle_ns``).

    Means over the usual steps of each rank (``steps.summary``); ``other_ns`` is the median over the other ranks (``peers_of``).
    A part that is not known of every rank is left out.

    Args:
        traces: of one job.
        rank: which.

    Returns:
        Columns as in ``PARTS``, with ``more_ns`` above 0.
    """
    other_ranks = peers_of(traces, rank)
    if not other_ranks:
        return pl.DataFrame(schema=PARTS)
    part_means = _parts_of_ranks(traces)
    rows = part_means.filter(rank=rank).select("part", own_ns="mean_ns")
    by_part = part_means.filter(pl.col("rank").is_in(other_ranks)).group_by("part")
    medians = by_part.agg(other_ns=pl.col("mean_ns").median(), ranks=pl.len()).filter(pl.col("ranks") == len(other_ranks))
    rows = rows.join(medians, on="part").with_columns(more_ns=pl.col("own_ns") - pl.col("other_ns"))
    return rows.filter(pl.col("more_ns") > 0).sort("more_ns", "part", descending=[True, False]).select(cast_columns(PARTS))


def late_calls(traces: Sequence[Trace], rank: int, part: str) -> pl.DataFrame:
    """The operators and Python functions that take a rank longer than the others in a part of a step; most beyond them first.

    Of the host: what each ran itself in that part on the training thread, without what it called and without waiting, as in
    ``late_parts``; what a built-in runs is its caller's. Of an accelerator: ``rank_differences`` by name, of computing the device
    time, else the time of the host. Communication is left out.

    Returns:
        Columns as in ``CALLS``, with ``more_ns`` above 0; per step, ``other_ns`` as there.
    """
    other_ranks = peers_of(traces, rank)
    if not other_ranks:
        return pl.DataFrame(schema=CALLS)
    if _is_of_device(traces):
        return _differences_by_name(with_peers(traces, rank), rank, "device_self_ns" if part in _WORK else "self_ns")
    call_means = pl.concat([_calls_of_rank(traces, number, part) for number in (rank, *other_ranks)])
    key = ["kind", "name"]
    rank_rows = call_means.filter(rank=rank).select(*key, own_ns="mean_ns")
    # a rank that never calls it counts with nothing
    rank_numbers = pl.DataFrame({"rank": other_ranks}, schema={"rank": pl.Int64})
    pairs = rank_rows.select(key).join(rank_numbers, how="cross").join(call_means, on=[*key, "rank"], how="left")
    medians = pairs.group_by(key).agg(other_ns=pl.col("mean_ns").fill_null(0).median())
    rows = rank_rows.join(medians, on=key).with_columns(more_ns=pl.col("own_ns") - pl.col("other_ns"))
    rows = rows.filter(pl.col("more_ns") > 0).sort("more_ns", "kind", "name", descending=[True, False, False])
    return rows.select(cast_columns(CALLS))


def _is_of_device(traces: Sequence[Trace]) -> bool:
    return any(trace.has_accelerator for trace in traces)


@once_per_run
def _parts_of_ranks(traces: Sequence[Trace]) -> pl.DataFrame:
    """rank, part, mean_ns: what a usual step of each rank has of every part that is known of it."""
    of_device = _is_of_device(traces)
    rows = []
    for rank, windows in by_rank(traces).items():
        parts = [_device_parts(trace) if of_device else _host_parts(traces, trace) for trace in windows]
        steps = sum(count for count, _ in parts)
        part_names = set.intersection(*(set(lengths) for count, lengths in parts if count)) if steps else set()
        rows += [(rank, name, sum(lengths[name] for count, lengths in parts if count) / steps) for name in sorted(part_names)]
    return pl.DataFrame(rows, schema={"rank": pl.Int64, "part": pl.String, "mean_ns": pl.Float64}, orient="row")


def _device_parts(trace: Trace) -> tuple[int, dict[str, float]]:
    """Number of usual steps of a trace, and what all of them have of the parts of its device, ns."""
    steps = usual_device_steps(trace)
    if not steps.height:
        return 0, {}
    idle = idle_causes(trace).join(steps.select("step"), on="step", how="semi")
    data_ns = float(idle.filter(cause=DATA)["idle_ns"].sum())
    lengths = {name: float(steps[name].sum()) for name in (*_WORK, _IDLE) if not steps[name].null_count()}
    if _IDLE in lengths:
        lengths[_DATA] = data_ns
        lengths[_IDLE] -= data_ns
    return steps.height, lengths


def _host_parts(traces: Sequence[Trace], trace: Trace) -> tuple[int, dict[str, float]]:
    """Number of usual steps of a trace, and what all of them have of the phases of its host without waiting, ns."""
    steps = usual_step_times(trace)
    phases = phase_intervals(trace)
    if not steps.height or phases is None:
        return 0, {}
    working = _working_intervals(traces, trace, steps)
    unknown = {name for name in PHASES if steps[name].null_count()}
    return steps.height, {
        name: float(intersect(intervals, working).length_ns)
        for name, intervals in _phases_within(phases, working).items()
        if name not in unknown
    }


def _working_intervals(traces: Sequence[Trace], trace: Trace, steps: pl.DataFrame) -> Intervals:
    """When the host of a trace works in some of its steps: when it does not wait in a collective."""
    start, length = steps["start_ns"].to_numpy(), steps["duration_ns"].to_numpy()
    waits = subtract(waits_of_rank(traces, trace.rank), merged(_innermost_operators(trace)))
    return subtract(merge_intervals(start, start + length), waits)


def _phases_within(phases: HostPhases, working: Intervals) -> dict[str, Intervals]:
    """The phases of the host by the columns of ``PHASES``; Python is what is left of ``working``."""
    sets = (phases.data, phases.forward, phases.backward, phases.optimizer, phases.device_wait, phases.between)
    left = working
    for intervals in sets:
        left = subtract(left, intervals)
    return dict(zip(PHASES, (*sets, left), strict=True))


def _innermost_operators(trace: Trace) -> pl.DataFrame:
    """The operators of the training thread that call no others, but for communication: start_ns, end_ns.

    One around a collective, such as a function of autograd that sums over ranks, is open while it waits.
    """
    calls = operator_calls(trace, of_thread=True)
    communicating = names.containing(names.of_calls(trace), COMMUNICATION_NAME)
    is_outer = pl.col("id").is_in(calls["parent"].drop_nulls().implode())
    return calls.filter(~is_outer & ~pl.col("name").is_in(communicating).fill_null(False))


def _calls_of_rank(traces: Sequence[Trace], rank: int, part: str) -> pl.DataFrame:
    """rank, kind, name, mean_ns: what operators and functions of a rank run themselves in a part of a usual step."""
    frames, count = [], 0
    for trace in by_rank(traces)[rank]:
        steps, phases = usual_step_times(trace), phase_intervals(trace)
        if not steps.height or phases is None:
            continue
        count += steps.height
        working = _working_intervals(traces, trace, steps)
        in_part = intersect(_phases_within(phases, working)[part], working)
        operators, functions = operator_calls(trace, of_thread=True), python_calls(trace)
        operators = operators.with_columns(pl.col("name").cast(pl.String).str.strip_prefix(_ENGINE))
        is_work = ~pl.col("name").str.contains(COMMUNICATION_NAME) & ~pl.col("name").str.starts_with(STEP_PREFIX)
        of_python = pl.col("name").cast(pl.String).str.starts_with("<").fill_null(True)
        frames += [
            self_inside(in_part, operators).filter(is_work).with_columns(kind=pl.lit(OPERATOR)),
            self_inside(in_part, functions.filter(~of_python)).with_columns(kind=pl.lit(FUNCTION)),
        ]
    rows = pl.concat([pl.DataFrame(schema=_SELF_TIMES), *(frame.select(cast_columns(_SELF_TIMES)) for frame in frames)])
    sums = rows.drop_nulls("name").group_by("kind", "name").agg(mean_ns=pl.col("self_ns").sum() / max(count, 1))
    return sums.filter(pl.col("mean_ns") > 0).with_columns(rank=pl.lit(rank, dtype=pl.Int64))


def _differences_by_name(traces: Sequence[Trace], rank: int, column: str) -> pl.DataFrame:
    """``rank_differences`` without source lines, columns as in ``CALLS``."""
    rows = rank_differences(traces, rank)
    sums = rows.group_by("name").agg(own_ns=pl.col(column).sum(), other_ns=pl.col(f"other_{column}").sum())
    sums = sums.drop_nulls("name").with_columns(kind=pl.lit(OPERATOR), more_ns=pl.col("own_ns") - pl.col("other_ns"))
    return sums.filter(pl.col("more_ns") > 0).sort("more_ns", "name", descending=[True, False]).select(cast_columns(CALLS))
