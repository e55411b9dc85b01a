"""The clocks of the ranks of a run, from the messages that were recorded, and what is to be said of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from steplens.analysis.cluster.clocks.clock import Clocks, find_clocks
from steplens.analysis.cluster.clocks.messages import clock_bounds, message_sides
from steplens.analysis.cluster.clocks.solution import PIECES
from steplens.analysis.tools.once import once_per_run
from steplens.trace import health
from steplens.trace.building.checks.common import format_duration
from steplens.trace.trace import Trace

#: the most that times of two processes of one host are apart where they read its clock themselves
_HOST_ERROR_NS = 1_000
#: ... and where a device's times were brought to it
_DEVICE_ERROR_NS = 50_000
#: a clock that was set by less is not worth a word, ns
_WORTH_SAYING_NS = 1_000_000
#: as torch.profiler.tensorboard_trace_handler names its files
_HANDLERS_NAME = re.compile(r"(?P<host>[^/\\]+)_(?P<process>\d+)\.\d+\.pt\.trace\.json")


@once_per_run
def job_clocks(traces: Sequence[Trace]) -> Clocks:
    """The clock of each rank against the lowest that it exchanged messages with; see ``clocks.clock.find_clocks``."""
    hosts = {trace.rank: host for trace in traces if trace.rank >= 0 and (host := host_of(trace))}
    error_ns = _DEVICE_ERROR_NS if any(trace.has_accelerator for trace in traces) else _HOST_ERROR_NS
    return find_clocks(clock_bounds(message_sides(traces)), hosts, host_error_ns=error_ns)


def host_of(trace: Trace) -> str:
    """The computer that a trace was recorded on; empty where the source does not say.

    Source: ``host_name`` or ``hostname`` of ``meta``; else the name that PyTorch's handler gives a file, computer and process,
    where the process is that of the trace.
    """
    values = trace.meta_values()
    return str(values.get("host_name") or values.get("hostname") or "") or trace.once(_host_in_name)


def _host_in_name(trace: Trace) -> str:
    name_parts = _HANDLERS_NAME.search(str(trace.meta_values().get("traceName") or ""))
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


def find_clock_trouble(traces: Sequence[Trace]) -> list[health.HealthFinding]:
    """Clocks that were set while they were recorded, and messages that contradict each other."""
    if len({trace.rank for trace in traces}) < 2:
        return []
    clocks = job_clocks(traces)
    findings = []
    compared = (health.RANK_COMPARISON, health.COMMUNICATION_TIMES)
    ordered = clocks.pieces.sort("rank", "piece").with_columns(
        set_by=(pl.col("offset_ns").shift(1) - pl.col("offset_ns")).over("rank"),
        low=pl.col("last_message_ns").shift(1).over("rank"),
    )
    for row in ordered.filter(pl.col("set_by").abs() >= _WORTH_SAYING_NS).iter_rows(named=True):
        direction = "forward" if row["set_by"] > 0 else "back"
        message = (
            f"the clock of rank {row['rank']} was set {direction} by {format_duration(abs(row['set_by']))} while it was "
            f"recorded, as its messages say (between {row['low']} and {row['first_message_ns']} ns on it); what came before "
            "and what came after are brought to the other clocks each for itself"
        )
        findings.append(health.finding("rank_clock_set", health.WARNING, 1, message, *compared))
    if clocks.contradictions:
        count = sum(messages for _, _, messages in clocks.contradictions)
        first, second, _ = clocks.contradictions[0]
        message = (
            f"{count} bounds from messages between {len(clocks.contradictions)} pairs of ranks contradict each other, such as "
            f"between ranks {first} and {second}: messages that are not the same were paired, or a clock was set often; "
            "these tell nothing of clocks"
        )
        findings.append(health.finding("contradictory_messages", health.WARNING, count, message, *compared))
    return findings
