"""Findings about the data itself: what was lost, damaged or contradictory, and what that makes unsafe.

A finding names the conclusions it makes unsafe in words of ``CONCLUSIONS``, a fixed vocabulary, so that a program can
ask ``unsafe(run.health(), OPERATOR_TIMES)`` before it draws one. docs/health.md describes every check.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

#: severities: worth knowing and not in the way of any question a profile usually answers; some answers are wrong or
#: incomplete; data is missing or contradicts itself
INFO = "info"
WARNING = "warning"
ERROR = "error"
SEVERITIES = (INFO, WARNING, ERROR)

EVERYTHING = "everything"
STEP_TIMES = "step times"
STEP_AVERAGES = "averages over steps"
STEP_PHASES = "phases of steps"
STEP_DEVICE_TIMES = "device time of steps"
OPERATOR_CALLS = "operator calls"
OPERATOR_TIMES = "operator times"
OPERATOR_SELF_TIMES = "operator self times"
OPERATOR_DEVICE_TIMES = "device time per operator"
KERNEL_CALLS = "kernel calls"
KERNEL_TIMES = "kernel times"
KERNEL_WAITS = "kernel waits"
KERNEL_DETAILS = "kernel details"
OVERLAP = "overlap and idle time"
HOST_AGAINST_DEVICE = "host against device"
COMMUNICATION_TIMES = "communication times"
COMMUNICATION_VOLUME = "communication volume"
MEMORY = "memory"
CALL_STACKS = "call stacks"
MODULES = "modules"
FLOWS = "links between events"
USER_MARKS = "user marks"
RUNTIME_CALLS = "runtime calls"
GARBAGE_COLLECTION = "garbage collection"
COUNTERS = "counters"
DATA_LOADING = "data loading"
SHORT_TIMES = "short times"
RANK_COMPARISON = "comparison of ranks"
RUN_OPTIONS = "options of the run"
RESULT_FILES = "result files"

#: every conclusion a finding may call unsafe, and the tables and analyses it stands for
CONCLUSIONS: dict[str, str] = {
    EVERYTHING: "every table of the trace",
    STEP_TIMES: "steps; durations of steps, Stage and Preparing of step_trace_time",
    STEP_AVERAGES: "any mean over the steps of the trace",
    STEP_PHASES: "data wait, forward, backward, optimizer of analysis.steps",
    STEP_DEVICE_TIMES: "computing, communication and free time per step; kernels.step",
    OPERATOR_CALLS: "number of rows of ops, per name or per step",
    OPERATOR_TIMES: "ops.start_ns, ops.end_ns; total times",
    OPERATOR_SELF_TIMES: "ops.self_ns, ops.parent, ops.depth",
    OPERATOR_DEVICE_TIMES: "ops.device_self_ns, ops.device_total_ns, kernels.op",
    KERNEL_CALLS: "number of rows of kernels, per name, stream or step",
    KERNEL_TIMES: "kernels.start_ns, kernels.end_ns; op_statistic",
    KERNEL_WAITS: "kernels.wait_ns, kernels.launch_ns; queue length",
    KERNEL_DETAILS: "shapes, types, blocks of kernels; kernel_metrics",
    OVERLAP: "analysis.overlap: computing, uncovered communication, idle time of the device",
    HOST_AGAINST_DEVICE: "any comparison of a time on the host with one on the device",
    COMMUNICATION_TIMES: "communication.start_ns, communication.end_ns; communication_times",
    COMMUNICATION_VOLUME: "communication.bytes, group, ranks; communication_bandwidth, communication_matrix",
    MEMORY: "memory, allocations; peaks and what held them",
    CALL_STACKS: "python; ops.stack",
    MODULES: "ops.module",
    FLOWS: "flows",
    USER_MARKS: "marks",
    RUNTIME_CALLS: "api, task_queue",
    GARBAGE_COLLECTION: "gc",
    COUNTERS: "counters",
    DATA_LOADING: "pipeline_loaders, pipeline_epochs, pipeline_tasks; analysis.loaders",
    SHORT_TIMES: "intervals and differences not much longer than the resolution of the clock",
    RANK_COMPARISON: "any comparison between ranks: stragglers, waiting for peers, imbalance",
    RUN_OPTIONS: "what was recorded and which outputs are due; meta",
    RESULT_FILES: "results of another analysis that lie beside the data and were not read",
}

_SEPARATOR = ", "
#: what differs between the messages of one finding about several traces
_FIGURE = re.compile(r"\d[\d.,e+]*( ?(ns|us|ms|s|h)\b)?")
_MOST = (1 << 63) - 1


@dataclass(frozen=True)
class HealthFinding:
    """One finding about the data.

    Attributes:
        check: stable identifier, such as ``truncated_file``.
        severity: "info", "warning" or "error".
        count: how many events it concerns.
        message: one sentence for the user.
        unsafe: what not to trust because of it: words of ``CONCLUSIONS``, separated by commas; empty when nothing is.
    """

    check: str
    severity: str
    count: int
    message: str
    unsafe: str = ""

    def conclusions(self) -> list[str]:
        """What it makes unsafe, word by word."""
        return self.unsafe.split(_SEPARATOR) if self.unsafe else []


def finding(check: str, severity: str, count: int, message: str, *unsafe: str) -> HealthFinding:
    """A finding; see ``HealthFinding`` for the arguments, ``unsafe`` word by word."""
    return HealthFinding(check, severity, count, message, _SEPARATOR.join(unsafe))


def group_of_finding(severity: str, check: str, message: str) -> tuple[str, str, str]:
    """What findings about several traces have in common that are one finding: counts of findings are counts of such groups.

    Two findings of one check about one trace are about different things, such as copies of operators and of kernels; their
    messages differ by more than their figures.
    """
    return severity, check, _FIGURE.sub("", message)


class HealthLog:
    """Collects findings while a source is read."""

    def __init__(self) -> None:
        self.findings: list[HealthFinding] = []

    def add(self, check: str, severity: str, count: int, message: str, unsafe: str | Iterable[str] = "") -> None:
        """Record one finding; see ``HealthFinding`` for the arguments."""
        text = unsafe if isinstance(unsafe, str) else _SEPARATOR.join(unsafe)
        self.findings.append(HealthFinding(check, severity, count, message, text))

    def extend(self, findings: Iterable[HealthFinding]) -> None:
        """Record several findings."""
        self.findings.extend(findings)

    def frame(self) -> pl.DataFrame:
        """The findings as the ``health`` table."""
        return frame_of(self.findings)


def frame_of(findings: Iterable[HealthFinding]) -> pl.DataFrame:
    """Findings as rows of the ``health`` table."""
    import polars as pl

    from steplens.trace.schema import SCHEMA

    # counts of side files are numbers of any size
    rows = [
        {**asdict(item), "count": min(max(item.count, 0), _MOST), "message": _replace_surrogates(item.message)}
        for item in findings
    ]
    return pl.DataFrame(rows, schema=SCHEMA["health"])


def _replace_surrogates(text: str) -> str:
    """The text with "?" for halves of surrogate pairs: a message may quote what stands in a damaged file."""
    return text.encode("utf-8", "replace").decode()


def unsafe(health: pl.DataFrame, conclusion: str, *, least: str = INFO) -> pl.DataFrame:
    """The findings that make a conclusion unsafe.

    Args:
        health: ``Run.health()`` or the ``health`` table of a trace.
        conclusion: one of ``CONCLUSIONS``.
        least: the lowest severity that matters.

    Raises:
        ValueError: the word is not in the vocabulary.
    """
    import polars as pl

    if conclusion not in CONCLUSIONS:
        raise ValueError(f"{conclusion!r} is no conclusion; they are {', '.join(CONCLUSIONS)}")
    words = pl.col("unsafe").fill_null("").str.split(_SEPARATOR)
    concerned = words.list.contains(conclusion) | words.list.contains(EVERYTHING)
    return health.filter(concerned & pl.col("severity").is_in(SEVERITIES[SEVERITIES.index(least) :]))
