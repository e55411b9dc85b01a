"""Every communication operation of a run: waiting told apart from moving data, bandwidth, and what computing hides."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from steplens.analysis.cluster.arrivals import arrivals
from steplens.analysis.cluster.clocks.messages import has_recorded_steps
from steplens.analysis.cluster.measured_communication import communication_times, is_measured
from steplens.analysis.steps.device_work import computing_tasks
from steplens.analysis.tools.joined_rows import join_rows
from steplens.analysis.tools.once import once_if_small, once_per_run
from steplens.analysis.tools.overlap import length_inside, merged
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import COLLECTIVE
from steplens.trace.trace import Trace

#: who told waiting from moving data: the arrival of the other ranks, or the communication library itself
ARRIVAL, LIBRARY = "arrival", "library"

OPERATIONS = table_schema(
    "rank, step, group: String, operation: String, kind: String, number, bytes, start_ns, duration_ns, wait_ns, transfer_ns, "
    "measured_by: String, last_rank, overlapped_ns, exposed_ns, bytes_per_second: Float64"
)
#: further columns of ``named_operations``
_NAMED = {**OPERATIONS, **table_schema("name: String, dtype: String, ranks, in_step_ns")}
_SUMS = table_schema(
    "operations, bytes, duration_ns, wait_ns, transfer_ns, unexplained_ns, wait_percent: Float64, overlapped_ns, exposed_ns, "
    "exposed_percent: Float64, bytes_per_second: Float64"
)
KEYS: dict[str, tuple[str, ...]] = {
    "operation": ("operation",),
    "group": ("group",),
    "size": ("operation", "bytes_each"),
    "step": ("step",),
    "rank": ("rank",),
}
#: what the communication library measures -> its column
_LIBRARY = {"library_wait_ns": "wait_ms", "library_transit_ns": "transit_ms"}
_CALL = ["rank", "step", "group", "operation", "number"]
#: the operations of so many traces are in memory at once
_PORTION = 256


def communication_operations(traces: Sequence[Trace]) -> pl.DataFrame:
    """Every operation of every rank, in order of rank and start; columns as in ``OPERATIONS``.

    * ``number`` counts collectives of one step, group and operation from 0 in order of start; null outside steps. Of a trace
      without any step it counts those of the whole recording.
    * ``wait_ns``, ``transfer_ns``: until the last rank of the group had come to this collective / the rest
      (``measured_by`` "arrival", see ``analysis.cluster.arrivals``); else what the library measured as wait and as transit
      ("library"),
      which do not add up to the duration: the rest it calls idle, as while ranks are not there yet. Null where neither is
      known: with ranks missing nobody can tell. ``last_rank`` is the one that came last.
    * ``overlapped_ns``: the part during which the rank's device computes (on a CPU: any of its threads); ``exposed_ns`` the rest.
    * ``bytes_per_second`` = bytes / transfer_ns; null where one of them is not known or 0. ``bytes`` are those of the rank's own
      tensors, so this is not what a link carries: an all-reduce over a ring of n ranks moves 2 (n - 1) / n times as much.

    Ranks are those of the job; a trace whose rank is unknown has -1. ``start_ns`` is on the clock of its rank.

    Args:
        traces: of one job; several windows of a rank may be among them.
    """
    return named_operations(traces).select(*OPERATIONS)


@once_per_run
def named_operations(traces: Sequence[Trace]) -> pl.DataFrame:
    """``communication_operations`` with what else is known of each: ``name`` (of its event), ``dtype``, ``ranks`` (size of its
    group) and ``in_step_ns`` (its start, from the start of its step on the host of its rank;
    null where it starts before).
    """
    if not traces:
        return pl.DataFrame(schema=_NAMED)
    return join_rows(rows for _, rows in _named_in_portions(traces)).sort("rank", "start_ns", maintain_order=True)


def operations_in_portions(traces: Sequence[Trace]) -> Iterator[tuple[Sequence[Trace], pl.DataFrame]]:
    """The rows of ``named_operations`` of some traces after the others: of a large job they take gigabytes.

    Yields:
        Some of the traces, in their order, and their rows, sorted by rank and start.
    """
    if len(traces) <= _PORTION:
        yield traces, named_operations(traces)
    else:
        yield from _named_in_portions(traces)


def _named_in_portions(traces: Sequence[Trace]) -> Iterator[tuple[Sequence[Trace], pl.DataFrame]]:
    arrived = arrivals(traces)
    last = arrived.sort("place").unique(["step", "group", "operation", "number"], keep="last")
    last = last.select("step", "group", "operation", "number", last_rank="rank")
    # without steps, step is null everywhere
    arrived = arrived.join(last, on=["step", "group", "operation", "number"], nulls_equal=True).select(
        *_CALL, "wait_ns", "transfer_ns", "last_rank"
    )
    for begin in range(0, len(traces), _PORTION):
        some = traces[begin : begin + _PORTION]
        ranks = {trace.rank for trace in some}
        rows = join_rows(operations_of_trace(trace) if "communication" in trace else _of_nothing() for trace in some)
        rows = rows.sort("rank", "start_ns", maintain_order=True)
        yield some, _with_arrivals(rows, arrived.filter(pl.col("rank").is_in(ranks)))


def _with_arrivals(rows: pl.DataFrame, arrived: pl.DataFrame) -> pl.DataFrame:
    """Operations with their waiting, as far as the arrival of the other ranks or their library tells it."""
    in_step_ns = pl.col("start_ns") - pl.col("step_start_ns")
    rows = rows.with_columns(
        duration_ns=pl.col("end_ns") - pl.col("start_ns"), in_step_ns=pl.when(in_step_ns >= 0).then(in_step_ns)
    )
    rows = rows.join(arrived, on=_CALL, how="left", nulls_equal=True, maintain_order="left")
    is_measured = pl.col("wait_ns").is_not_null()
    rows = rows.with_columns(
        measured_by=pl.when(is_measured)
        .then(pl.lit(ARRIVAL))
        .when(pl.col("library_wait_ns").is_not_null())
        .then(pl.lit(LIBRARY)),
        wait_ns=pl.coalesce("wait_ns", "library_wait_ns"),
        transfer_ns=pl.coalesce("transfer_ns", "library_transit_ns"),
        exposed_ns=pl.col("duration_ns") - pl.col("overlapped_ns"),
    )
    return rows.with_columns(bytes_per_second=transfer_rate("bytes", "transfer_ns")).select(cast_columns(_NAMED))


@functools.cache
def _of_nothing() -> pl.DataFrame:
    return operations_of_trace(Trace(Path(), {}))


@once_if_small
def operations_of_trace(trace: Trace) -> pl.DataFrame:
    """The operations of one trace, with what the library measured (``_LIBRARY``), no longer than the operation; else null."""
    kind = pl.col("kind").cast(pl.String)
    rows = (
        trace.required("communication")
        .drop_nulls("end_ns")
        .select(
            "step",
            "bytes",
            "start_ns",
            "end_ns",
            kind=kind,
            name=pl.col("name").cast(pl.String),
            dtype=pl.col("dtype").cast(pl.String),
            ranks="ranks",
            group=pl.col("group").cast(pl.String).fill_null(""),
            operation=pl.coalesce(pl.col("operation").cast(pl.String), pl.col("name").cast(pl.String)),
        )
        .sort("start_ns", maintain_order=True)
        .collect()
    )
    tasks = computing_tasks(trace).select("start_ns", "end_ns").collect()
    computing = merged(tasks)
    overlapped = length_inside(computing, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    # as the arrivals count them
    number = pl.int_range(pl.len()).over("step", "group", "operation", "kind")
    is_outside = pl.col("step").is_null() & (pl.col("step").is_not_null().any() | has_recorded_steps(trace))
    counted = ~is_outside & (pl.col("kind") == COLLECTIVE)
    rows = rows.with_columns(
        rank=pl.lit(trace.rank, dtype=pl.Int64),
        number=pl.when(counted).then(number),
        # what computed beside it is not known of a rank of which only results are there
        overlapped_ns=pl.lit(None, dtype=pl.Int64) if trace.is_results_only else pl.Series(overlapped),
    )
    steps = trace.required("steps").select(step="id", step_start_ns="start_ns").unique("step", keep="first").collect()
    rows = rows.join(steps, on="step", how="left", maintain_order="left")
    if "communication_times" not in trace or not is_measured(trace):
        return rows.with_columns(pl.lit(None, dtype=pl.Int64).alias(name) for name in _LIBRARY)
    # a damaged source may say more than 64 bits hold
    times = {ours: (pl.col(theirs) * 1e6).round().cast(pl.Int64, strict=False) for ours, theirs in _LIBRARY.items()}
    measured = communication_times(trace).select("name", "step", **times).unique(["name", "step"], keep="first")
    rows = rows.join(measured, on=["name", "step"], how="left", nulls_equal=True, maintain_order="left")
    return rows.with_columns(pl.min_horizontal(name, pl.col("end_ns") - pl.col("start_ns")).alias(name) for name in _LIBRARY)


def communication(traces: Sequence[Trace], by: str = "operation") -> pl.DataFrame:
    """Operations in groups, the longest first (steps and ranks in order): sums of ``communication_operations``.

    ``unexplained_ns``: what of the duration is neither known to be waiting nor to be transfer; the three add up, but where a
    library measured transfer that runs while it waits: then nothing is left.
    ``wait_percent``: share of the duration of the operations whose wait is known; ``exposed_percent``: of those whose overlap is
    known;
    ``bytes_per_second``: bytes / transfer time of the operations of which both are known. ``wait_ns`` and ``transfer_ns`` are
    null where no operation of the group has them, and ``unexplained_ns`` with them, ``bytes`` where one has none.

    Args:
        traces: of one job.
        by: "operation", "group", "size" (operation and ``bytes_each``, the bytes of one), "step" or "rank".

    Raises:
        ValueError: ``by`` is none of them.
    """
    if by not in KEYS:
        raise ValueError(f"communication(by={by!r}): by must be one of {', '.join(KEYS)}")
    keys = list(KEYS[by])
    types = {**OPERATIONS, "bytes_each": pl.Int64()}
    rows = communication_operations(traces).with_columns(bytes_each=pl.col("bytes"))
    waited, moved = pl.col("wait_ns").is_not_null(), (pl.col("transfer_ns") > 0) & pl.col("bytes").is_not_null()
    overlaps = pl.col("overlapped_ns").is_not_null()
    groups = rows.group_by(keys).agg(
        operations=pl.len(),
        bytes=pl.when(pl.col("bytes").null_count() == 0).then(pl.col("bytes").sum()),
        duration_ns=pl.col("duration_ns").sum(),
        wait_ns=pl.when(waited.any()).then(pl.col("wait_ns").sum()),
        transfer_ns=pl.when(waited.any()).then(pl.col("transfer_ns").sum()),
        overlapped_ns=pl.when(overlaps.any()).then(pl.col("overlapped_ns").sum()),
        exposed_ns=pl.when(overlaps.any()).then(pl.col("exposed_ns").sum()),
        _overlaps=pl.col("duration_ns").filter(overlaps).sum(),
        _waited=pl.col("duration_ns").filter(waited).sum(),
        _bytes=pl.col("bytes").filter(moved.fill_null(False)).sum(),
        _moved=pl.col("transfer_ns").filter(moved.fill_null(False)).sum(),
    )
    groups = groups.with_columns(
        unexplained_ns=(pl.col("duration_ns") - pl.col("wait_ns") - pl.col("transfer_ns")).clip(0),
        wait_percent=pl.when(pl.col("_waited") > 0).then(pl.col("wait_ns") * 100 / pl.col("_waited")),
        exposed_percent=pl.when(pl.col("_overlaps") > 0).then(pl.col("exposed_ns") * 100 / pl.col("_overlaps")),
        bytes_per_second=transfer_rate("_bytes", "_moved"),
    )
    order = keys if by in ("step", "rank") else ["duration_ns", *keys]
    return groups.sort(order, descending=[name == "duration_ns" for name in order]).select(
        *(pl.col(key).cast(types[key]) for key in keys), *cast_columns(_SUMS)
    )


def transfer_rate(size: str, time_ns: str) -> pl.Expr:
    """Bytes per second; null where nothing moved or no time is known."""
    return pl.when((pl.col(time_ns) > 0) & (pl.col(size) > 0)).then(pl.col(size) * 1e9 / pl.col(time_ns))
