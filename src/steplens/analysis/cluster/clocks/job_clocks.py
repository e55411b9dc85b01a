"""The clocks of the ranks of a run, from the messages that were recorded, and what is to be said of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from steplens.analysis.cluster.clocks.clock import Clocks, find_clocks
from steplens.analysis.cluster.clocks.differences import WORTH_SAYING_NS, clocks_that_were_set, differing_clocks
from steplens.analysis.cluster.clocks.messages import clock_bounds, message_sides
from steplens.analysis.cluster.clocks.solution import PIECES
from steplens.analysis.tools.once import once_per_run
from steplens.common.memory import return_free_memory
from steplens.trace import health
from steplens.trace.building.checks.ranks import agreed_offset, describe_offset, ends_together, step_bounds, step_start_offset
from steplens.trace.trace import Trace

#: the most that times of two processes of one host are apart where they read its clock themselves
_HOST_ERROR_NS = 1_000
#: ... and where a device's times were brought to it
_DEVICE_ERROR_NS = 50_000
#: the bounds of so many ranks take hundreds of megabytes
_MANY_TRACES = 1024
#: so many pairs of ranks whose messages contradict each other are looked at, of those that were paired wrongly
_MOST_PAIRS = 8
_COMPARED = (health.RANK_COMPARISON, health.COMMUNICATION_TIMES)
#: as torch.profiler.tensorboard_trace_handler names its files
_HANDLERS_NAME = re.compile(r"(?P<host>[^/\\]+)_(?P<process>\d+)\.\d+\.pt\.trace\.json")


@once_per_run
def job_clocks(traces: Sequence[Trace]) -> Clocks:
    """The clock of each rank against the lowest that it exchanged messages with; see ``clocks.clock.find_clocks``."""
    hosts = {trace.rank: host for trace in traces if trace.rank >= 0 and (host := host_of(trace))}
    error_ns = _DEVICE_ERROR_NS if any(trace.has_accelerator for trace in traces) else _HOST_ERROR_NS
    clocks = find_clocks(clock_bounds(message_sides(traces)), hosts, host_error_ns=error_ns)
    if len(traces) >= _MANY_TRACES:
        return_free_memory()
    return clocks


def host_of(trace: Trace) -> str:
    """The computer that a trace was recorded on; empty where the source does not say.

    Source: ``host_name`` or ``hostname`` of ``meta``; else the name that PyTorch's handler gives a file, computer and process,
    where the process is that of the trace.
    """
    return str(trace.meta_value("host_name") or trace.meta_value("hostname") or "") or trace.once(_host_in_name)


def _host_in_name(trace: Trace) -> str:
    name_parts = _HANDLERS_NAME.search(str(trace.meta_value("traceName") or ""))
    if name_parts is None or "threads" not in trace:
        return ""
    processes = trace.required("threads").select(pl.col("pid").cast(pl.String)).unique().collect()["pid"]
    return name_parts["host"] if name_parts["process"] in processes else ""


@once_per_run
def rank_clocks(traces: Sequence[Trace]) -> pl.DataFrame:
    """Offset and drift of the clock of each rank, with error bars; columns as in ``clocks.solution.PIECES``.

    No rows where fewer than two ranks exchanged messages that tell.
    """
    pieces = job_clocks(traces).pieces
    return pieces if pieces["rank"].n_unique() > 1 else pl.DataFrame(schema=PIECES)


@once_per_run
def find_clock_trouble(traces: Sequence[Trace]) -> list[health.HealthFinding]:
    """Clocks that differ, that were set while they were recorded, and messages that contradict each other.

    Ranks whose clocks no message compares are compared by the beginnings of their steps.
    """
    of_rank: dict[int, list[Trace]] = {}
    for trace in traces:
        if trace.rank >= 0:
            of_rank.setdefault(trace.rank, []).append(trace)
    if len(of_rank) < 2:
        return []
    clocks = job_clocks(traces)
    hosts = {rank: host_of(windows[0]) for rank, windows in of_rank.items()}
    return [
        *differing_clocks(clocks.pieces, hosts, _usual_step_ns(of_rank[min(of_rank)])),
        *clocks_that_were_set(clocks.pieces, hosts),
        *_find_contradictions(clocks, traces),
        *step_start_offset(of_rank, _ranks_not_compared(clocks, of_rank)),
    ]


def _usual_step_ns(windows: Sequence[Trace]) -> float | None:
    steps = pl.concat([step_bounds(trace) for trace in windows])
    return steps.select((pl.col("end_ns") - pl.col("start_ns")).median()).item()  # type: ignore[no-any-return]


def _ranks_not_compared(clocks: Clocks, ranks: Iterable[int]) -> list[int]:
    """The ranks whose clocks neither messages nor a common host compare with that of the lowest rank."""
    references: dict[int, int] = dict(clocks.pieces.select("rank", "reference").iter_rows())
    contradicted = {rank for *pair, _ in clocks.contradictions for rank in pair}
    lowest = min(ranks)
    return [
        rank
        for rank in sorted(ranks)
        if rank != lowest
        and (rank not in references or references[rank] != references.get(lowest))
        and not {rank, lowest} & contradicted
        and not (rank in clocks.hosts and clocks.hosts[rank] == clocks.hosts.get(lowest))
    ]


def _find_contradictions(clocks: Clocks, traces: Sequence[Trace]) -> Iterator[health.HealthFinding]:
    """That messages contradict each other, and by how much the clocks differ as far as some of them agree on that."""
    if not clocks.contradictions:
        return
    count = sum(messages for _, _, messages in clocks.contradictions)
    first, second, _ = clocks.contradictions[0]
    message = (
        f"{count} bounds from messages between {len(clocks.contradictions)} pairs of ranks contradict each other, such as "
        f"between ranks {first} and {second}: messages that are not the same were paired, as where a sample of them was "
        "recorded, or a clock was set often; these tell nothing of clocks"
    )
    yield health.finding("contradictory_messages", health.WARNING, count, message, *_COMPARED)
    ends = message_sides(traces).filter(ends_together(pl.col("operation"))).select("message", "rank", "end_ns")
    for first, second, _ in clocks.contradictions[:_MOST_PAIRS]:
        both = ends.filter(rank=first).join(ends.filter(rank=second), on="message", suffix="_second")
        agreed = agreed_offset(both["end_ns_second"] - both["end_ns"], WORTH_SAYING_NS)
        if agreed is not None:
            message = (
                f"as far as {agreed.agreeing} of {both.height} collectives tell, which end {describe_offset(agreed.offset_ns)} "
                f"on rank {second} than on rank {first}, their clocks differ by that; figures are not corrected for it"
            )
            yield health.finding("rank_clock_offset", health.WARNING, agreed.agreeing, message, *_COMPARED)
