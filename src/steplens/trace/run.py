"""``Run``: one or more traces opened together, with the questions a user asks of them.

This is the facade for notebooks and commands: it alone reaches to the readers on its left and the analyses on its right.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from steplens.errors import InputError
from steplens.trace.building import checks
from steplens.trace.health import ERROR, RANK_COMPARISON, WARNING, finding, frame_of, unsafe
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Trace

if TYPE_CHECKING:
    from steplens.analysis.steps.summary import StepSummary
    from steplens.analysis.verdict import Verdict
    from steplens.readers.unread import Unread


@dataclass(frozen=True)
class Source:
    """Where one trace comes from.

    Attributes:
        path: run directory or file.
        format: what it is, such as "Kineto trace".
        reason: why it is read this way, in words that follow "because".
        ignored: what else lies there and is not read.
    """

    path: Path
    format: str = ""
    reason: str = ""
    ignored: tuple[str, ...] = ()


class Run:
    """What ``steplens.open`` returns: the traces of one path.

    Attributes:
        path: what was opened.
        sources: where each trace comes from, in the order of ``traces``.
        traces: one per run directory or file, in order of name.
        unreadable: what lies in a folder and could not be read, path and reason.
        unread: what else lies there and is of no kind that is read, with its reason.
    """

    def __init__(
        self, path: Path, traces: list[tuple[Source, Trace]], unreadable: list[InputError], unread: Sequence[Unread] = ()
    ) -> None:
        self.path = path
        self.unread = list(unread)
        self.sources = [source for source, _ in traces]
        self.traces = [trace for _, trace in traces]
        self.unreadable = unreadable
        for trace in self.traces:
            # a run of some traces of another one, to ask something about them alone, leaves them their one choice of steps
            if not set(self.traces) <= set(trace.companions):
                trace.companions = tuple(self.traces)

    def trace(self, rank: int | None = None) -> Trace:
        """The tables of one rank.

        Args:
            rank: which; None is the first trace.

        Raises:
            InputError: no trace is of that rank.
        """
        if rank is None:
            return self.traces[0]
        for trace in self.traces:
            if trace.rank == rank:
                return trace
        raise InputError(self.path, f"holds no rank {rank}; its ranks are {sorted({trace.rank for trace in self.traces})}")

    def steps(self, *, whole_trace_without_steps: bool = False) -> pl.DataFrame:
        """Times of every step; see ``analysis.steps.times.step_times``. Several traces add the columns ``rank`` and ``window``.

        Args:
            whole_trace_without_steps: a trace without steps gives one row for all of it, ``step`` null.
        """
        from steplens.analysis.steps.times import step_times

        return self._each(lambda trace: step_times(trace, whole_trace_without_steps=whole_trace_without_steps))

    def step_summary(self) -> StepSummary:
        """The figures of a step, over the chosen steps of all traces; see ``analysis.steps.summary.StepSummary``."""
        return self._step_summary

    @cached_property
    def _step_summary(self) -> StepSummary:
        from steplens.analysis.steps.summary import summarize_steps

        return summarize_steps(self.traces)

    def verdict(self) -> Verdict:
        """What holds a step up, how sure that is, and where to look; see ``analysis.verdict.verdict``."""
        return self._verdict

    @cached_property
    def _verdict(self) -> Verdict:
        from steplens.analysis.verdict import verdict

        return verdict(self.traces, self._step_summary)

    def idle(self) -> pl.DataFrame:
        """Idle time of the device per step and cause; see ``analysis.device.idle.idle_causes``."""
        from steplens.analysis.device.idle import idle_causes

        return self._each(idle_causes)

    def operators(self, by: str = "name") -> pl.DataFrame:
        """Operator calls in groups; see ``analysis.operators.operators.operators``. Several traces are added up."""
        from steplens.analysis.operators.operators import operators, with_percentages

        if len(self.traces) == 1:
            return operators(self.traces[0], by)
        frame = pl.concat([operators(trace, by) for trace in self.traces])
        sums = ["calls", "self_ns", "total_ns", "device_self_ns", "device_total_ns"]
        keys = [name for name in frame.columns if name not in sums and not name.endswith("_percent")]
        added = frame.group_by(keys).agg(pl.col(*sums).sum())
        return with_percentages(added.sort(["self_ns", *keys], descending=[True, *([False] * len(keys))]))

    def kernels(self, by: str = "name") -> pl.DataFrame:
        """Device tasks by name, type, category or kind; see ``analysis.device.kernels.kernel_statistics``."""
        from steplens.analysis.device.kernels import kernel_statistics

        return self._each(lambda trace: kernel_statistics(trace, by))

    def flops(self, by: str = "name") -> pl.DataFrame:
        """Arithmetic of the operators, how fast, and how close to the device's peak; see ``analysis.operators.flops.flops``."""
        from steplens.analysis.operators.flops import flops

        return self._each(lambda trace: flops(trace, by))

    def bound(self, by: str = "step") -> pl.DataFrame:
        """Whether the host or the device limits each step or operator; see ``analysis.device.bound.bound``."""
        from steplens.analysis.device.bound import bound

        return self._each(lambda trace: bound(trace, by))

    def storms(self) -> pl.DataFrame:
        """Stretches of tasks that run shorter than issuing them takes; see ``analysis.device.storms.storms``."""
        from steplens.analysis.device.storms import storms

        return self._each(storms)

    def shapes(self, by: str = "operator") -> pl.DataFrame:
        """How input shapes change from step to step; see ``analysis.operators.shapes.shapes``."""
        from steplens.analysis.operators.shapes import shapes

        return self._each(lambda trace: shapes(trace, by))

    def launches(self) -> pl.DataFrame:
        """What launching costs the host, by runtime call; see ``analysis.device.queue.launch_statistics``."""
        from steplens.analysis.device.queue import launch_statistics

        return self._each(launch_statistics)

    def queues(self) -> pl.DataFrame:
        """How full the queue of each stream was; see ``analysis.device.queue.queue_summary``."""
        from steplens.analysis.device.queue import queue_summary

        return self._each(queue_summary)

    def api_calls(self) -> pl.DataFrame:
        """Runtime and driver calls by layer and name; see ``analysis.device.api.api_statistic``."""
        from steplens.analysis.device.api import api_statistic

        return self._each(api_statistic)

    def device_time(self) -> pl.DataFrame:
        """Idle, computing and other time of each device; see ``analysis.device.breakdown.temporal_breakdown``."""
        from steplens.analysis.device.breakdown import temporal_breakdown

        return self._each(lambda trace: temporal_breakdown(trace, per_device=True))

    def device_timeline(self) -> pl.DataFrame:
        """The whole time line of the devices in parts; see ``analysis.device.device_timeline.device_timeline``."""
        from steplens.analysis.device.device_timeline import device_timeline

        return self._each(device_timeline)

    def device_kinds(self) -> pl.DataFrame:
        """How long which kinds of task ran at once; see ``analysis.device.breakdown.kind_breakdown``."""
        from steplens.analysis.device.breakdown import kind_breakdown

        return self._each(kind_breakdown)

    def stream_idle(self) -> pl.DataFrame:
        """Why each stream was idle between two tasks; see ``analysis.device.breakdown.idle_breakdown``."""
        from steplens.analysis.device.breakdown import idle_breakdown

        return self._each(idle_breakdown)

    def overlap(self) -> pl.DataFrame:
        """How much of the communication happens beside computing; see ``analysis.device.breakdown.communication_overlap``."""
        from steplens.analysis.device.breakdown import communication_overlap

        return self._each(lambda trace: communication_overlap(trace, per_device=True))

    def communication(self, by: str = "operation") -> pl.DataFrame:
        """Waiting, moving data and overlap by operation, group, size, step or rank; see ``communication_operations``."""
        from steplens.analysis.cluster.communication_operations import communication

        return communication(self.traces, by)

    def communication_operations(self) -> pl.DataFrame:
        """Every communication operation of every rank; see ``analysis.cluster.communication_operations``."""
        from steplens.analysis.cluster.communication_operations import communication_operations

        return communication_operations(self.traces)

    def arrivals(self) -> pl.DataFrame:
        """When each rank came to each collective; see ``analysis.cluster.arrivals.arrivals``."""
        from steplens.analysis.cluster.arrivals import arrivals

        return arrivals(self.traces)

    def waits(self) -> pl.DataFrame:
        """Which rank waited for which, a matrix; see ``analysis.cluster.communication_pairs.waits``."""
        from steplens.analysis.cluster.communication_pairs import waits

        return waits(self.traces)

    def pairs(self) -> pl.DataFrame:
        """What each rank sent to each other one, a matrix; see ``analysis.cluster.communication_pairs.pairs``."""
        from steplens.analysis.cluster.communication_pairs import pairs

        return pairs(self.traces)

    def links(self) -> pl.DataFrame:
        """What moved over each link, as the communication library measured it; see ``analysis.cluster.links.links``."""
        from steplens.analysis.cluster.links import links

        return links(self.traces)

    def ranks(self) -> pl.DataFrame:
        """The parts of a step of every rank beside each other; see ``analysis.cluster.ranks.ranks``."""
        from steplens.analysis.cluster.ranks import ranks

        return ranks(self.traces)

    def step_trace(self) -> pl.DataFrame:
        """Interval, forward and backward, and tail of each step; see ``analysis.step_trace.step_trace.step_trace``."""
        from steplens.analysis.step_trace.step_trace import step_trace

        return self._each(step_trace)

    def cluster_steps(self) -> pl.DataFrame:
        """The parts of the steps of all ranks that tell of parallelism; see ``analysis.cluster.cluster_steps.cluster_steps``."""
        from steplens.analysis.cluster.cluster_steps import cluster_steps

        return cluster_steps(self.traces)

    def work(self) -> pl.DataFrame:
        """Arithmetic of every rank in a step; see ``analysis.operators.work.work``."""
        from steplens.analysis.operators.work import work

        return work(self.traces)

    def communication_costs(self) -> pl.DataFrame:
        """How long every rank moved data and waited in each step; see ``analysis.cluster.links.communication_costs``."""
        from steplens.analysis.cluster.links import communication_costs

        return communication_costs(self.traces)

    def core_types(self) -> pl.DataFrame:
        """Types of operators of AI Cores; see ``analysis.operators.operator_tables.core_types``."""
        from steplens.analysis.operators.operator_tables import core_types

        return self._each(core_types)

    def core_operators(self) -> pl.DataFrame:
        """Operators of AI Cores with their work; see ``analysis.operators.operator_tables.core_operators``."""
        from steplens.analysis.operators.operator_tables import core_operators

        return self._each(core_operators)

    def ai_cpu_types(self) -> pl.DataFrame:
        """Kernels of AI CPUs by type; see ``analysis.operators.operator_tables.ai_cpu_types``."""
        from steplens.analysis.operators.operator_tables import ai_cpu_types

        return self._each(ai_cpu_types)

    def dynamic_shapes(self, by: str = "operator") -> pl.DataFrame:
        """Times of operators or kernels from step to step; see ``analysis.operators.dynamic_shape.sums``."""
        from steplens.analysis.operators.dynamic_shape import sums

        return self._each(lambda trace: sums(trace, by))

    def processors(self) -> pl.DataFrame:
        """How busy processors were while the data pipeline worked; see ``analysis.data_loading.pipeline_cpu.cpu_samples``."""
        from steplens.analysis.data_loading.pipeline_cpu import cpu_samples

        return self._each(cpu_samples)

    def pipeline(self) -> pl.DataFrame:
        """Operations of the data pipeline and their queues; see ``analysis.data_loading.data_pipeline.operations``."""
        from steplens.analysis.data_loading.data_pipeline import operations

        return self._each(operations)

    def memory(self) -> pl.DataFrame:
        """Peak memory per device; see ``analysis.memory.memory.memory_summary``."""
        from steplens.analysis.memory.memory import memory_summary

        return self._each(memory_summary)

    def memory_peak(self, by: str = "operator") -> pl.DataFrame:
        """What the memory at its peak was used for; see ``analysis.memory.memory_peak.memory_peak``."""
        from steplens.analysis.memory.memory_peak import memory_peak

        return self._each(lambda trace: memory_peak(trace, by))

    def memory_categories(self) -> pl.DataFrame:
        """What tensors were used for at the peak; see ``analysis.memory.category_peak.category_peak``.

        Known where the profiler that recorded wrote it (``export_memory_timeline``); no rows elsewhere.

        Raises:
            InputError: the file with the categories is damaged.
        """
        from steplens.analysis.memory.category_peak import category_peak
        from steplens.analysis.memory.memory_categories import EVENTS
        from steplens.readers.steplens_run import memory_categories

        def of_trace(trace: Trace) -> pl.DataFrame:
            events = trace.once(memory_categories.of_trace)
            return category_peak(pl.DataFrame(schema=EVENTS) if events is None else events)

        return self._each(of_trace)

    def memory_growth(self) -> pl.DataFrame:
        """Whether memory grows from step to step, over all windows; see ``analysis.memory.memory_growth.memory_growth``."""
        from steplens.analysis.memory.memory_growth import memory_growth

        return memory_growth(self.traces)

    def memory_churn(self, by: str = "step") -> pl.DataFrame:
        """What is allocated and soon given back; see ``analysis.memory.memory_churn.memory_churn``."""
        from steplens.analysis.memory.memory_churn import memory_churn

        return self._each(lambda trace: memory_churn(trace, by))

    def fragmentation(self) -> pl.DataFrame:
        """What the allocator reserves beyond use; see ``analysis.memory.fragmentation.fragmentation``."""
        from steplens.analysis.memory.fragmentation import fragmentation

        return self._each(fragmentation)

    def health(self) -> pl.DataFrame:
        """Findings about the data itself, with the path they concern; no rows when nothing is wrong."""
        from steplens.analysis.stored_figures import contradictions

        found = []
        for source, trace in zip(self.sources, self.traces, strict=True):
            found += [(source.path, trace.health), (source.path, frame_of(contradictions(trace)))]
        for error in self.unreadable:
            lost = finding("unreadable", ERROR, 1, error.problem, RANK_COMPARISON)
            found.append((error.path, frame_of([lost])))
        found.append((self.path, self._across))
        schema = {**SCHEMA["health"], "source": pl.String()}
        frames = [frame.with_columns(source=pl.lit(str(path))) for path, frame in found if frame is not None and frame.height]
        return pl.concat([pl.DataFrame(schema=schema), *frames])

    @cached_property
    def _across(self) -> pl.DataFrame:
        """What the traces say about each other."""
        together = [(source.path, trace) for source, trace in zip(self.sources, self.traces, strict=True)]
        return frame_of(checks.across(together))

    def unsafe(self, conclusion: str, *, least: str = WARNING) -> pl.DataFrame:
        """The findings of ``health()`` that make a conclusion unsafe; no rows when it is safe.

        Args:
            conclusion: one of ``trace.health.CONCLUSIONS``, such as "operator times".
            least: the lowest severity that matters.

        Raises:
            ValueError: the word is not in the vocabulary.
        """
        return unsafe(self.health(), conclusion, least=least)

    def sql(self, query: str) -> pl.DataFrame:
        """Answer a SQL query over the tables (``ops``, ``kernels``, ``steps`` ...); several traces add a ``rank`` column.

        Raises:
            InputError: the query is wrong; the message says where.
        """
        context = pl.SQLContext()
        for name in SCHEMA:
            frames = [(trace.rank, frame) for trace in self.traces if (frame := trace.lazy(name)) is not None]
            if len(self.traces) == 1 and frames:
                context.register(name, frames[0][1])
            elif frames:
                context.register(name, pl.concat([frame.with_columns(rank=pl.lit(rank)) for rank, frame in frames]))
        try:
            return context.execute(query, eager=True)
        except pl.exceptions.PolarsError as error:
            raise InputError(self.path, f"cannot answer the query: {error}") from error

    def _each(self, analysis: Callable[[Trace], pl.DataFrame]) -> pl.DataFrame:
        if len(self.traces) == 1:
            return analysis(self.traces[0])
        frames = [
            analysis(trace).with_columns(rank=pl.lit(trace.rank, dtype=pl.Int64), window=pl.lit(source.path.name))
            for source, trace in zip(self.sources, self.traces, strict=True)
        ]
        return pl.concat(frames)


def open_run(path: str | os.PathLike[str], progress: Callable[[int, int, Path], None] | None = None) -> Run:
    """Open a run directory, a folder of them, or a trace file that steplens did not write.

    Args:
        path: what to open. A folder in which some windows cannot be read opens with the rest; ``health()`` names them.
        progress: told before a trace is read: how many are read already, how many there are, and its path.

    Raises:
        InputError: nothing at ``path`` can be read; the message says why and what to do.
    """
    from steplens.readers.detect import find_traces
    from steplens.readers.many import load_all

    top = Path(path)
    traces: list[tuple[Source, Trace]] = []
    unreadable: list[InputError] = []
    unread: list[Unread] = []
    every = find_traces(top, unread)
    for found, loaded in zip(every, load_all(top, every, progress), strict=True):
        if isinstance(loaded, InputError):
            unreadable.append(loaded)
        else:
            traces.append((Source(found.path, found.format, found.reason, found.ignored), loaded))
    if not traces:
        if len(unreadable) == 1:
            raise unreadable[0]
        raise InputError(top, f"holds {len(unreadable)} runs and none can be read; the first: {unreadable[0].problem}")
    return Run(top, traces, unreadable, unread)


@dataclass(frozen=True)
class Draft:
    """Some of the events of a path that takes long to open: for looking at, not for figures.

    Attributes:
        run: its first trace, with a few events that lie evenly in its file.
        bytes: of these events in the file.
        of_bytes: of the whole file.
        is_read: whether its tables are kept, so that opening it takes a moment, too.
    """

    run: Run
    bytes: int
    of_bytes: int
    is_read: bool


def open_draft(path: str | os.PathLike[str], is_laid_out: Callable[[Path], bool]) -> Draft | None:
    """A draft of a path, within a moment.

    Args:
        path: as for ``open_run``.
        is_laid_out: whether the folder in which the tables of a trace are kept has what is to be shown of it.

    Returns:
        None where its first trace can be shown soon, or is of a format that has to be read as a whole.
    """
    from steplens.readers.detect import is_kept
    from steplens.readers.drafts import draft

    drawn = draft(Path(path), is_laid_out)
    if drawn is None:
        return None
    found, trace, sample = drawn
    run = Run(Path(path), [(Source(found.path, found.format), trace)], [])
    return Draft(run, sample.bytes, sample.of_bytes, is_kept(found))
