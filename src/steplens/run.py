"""``Run``: one or more traces opened together, with the questions a user asks of them.

This is the facade for notebooks and commands: it alone reaches to the readers on its left and the analyses on its right.
"""

from __future__ import annotations

import contextlib
import html
import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from steplens.common.errors import InputError
from steplens.common.listings import listed_once
from steplens.common.stand_ins import told_path
from steplens.common.storage.files import locate_path
from steplens.trace.health import ERROR, RANK_COMPARISON, WARNING, finding, frame_of, unsafe
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Trace

if TYPE_CHECKING:
    from steplens.analysis.catalogue import Analysis
    from steplens.analysis.steps.summary import StepSummary
    from steplens.analysis.verdict_words import Verdict
    from steplens.common.executors import TaskExecutor
    from steplens.readers.unread import Unread
    from steplens.trace.cache.asked_before import AskedBefore

#: tables that are asked for first, and kept as they were answered
_KEPT_TABLES = ("steps", "operators")


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
        executor: where what is asked of each trace is worked out; None is this machine.
    """

    def __init__(
        self, path: Path, traces: list[tuple[Source, Trace]], unreadable: list[InputError], unread: Sequence[Unread] = ()
    ) -> None:
        self.path = path
        self.executor: TaskExecutor | None = None
        self.unread = list(unread)
        self.sources = [source for source, _ in traces]
        self.traces = [trace for _, trace in traces]
        self.unreadable = unreadable
        together = tuple(self.traces)
        all_traces, last_companions = set(together), tuple[Trace, ...]()
        for trace in self.traces:
            # a run of some traces of another one, to ask something about them alone, leaves them their one choice of steps
            if trace.companions is not last_companions and not all_traces <= set(trace.companions):
                trace.companions = together
            last_companions = trace.companions

    def __repr__(self) -> str:
        return f"<steplens.Run {self._describe_run()}; see verdict(), step_summary(), steps(), operators(), advise()>"

    def _repr_html_(self) -> str:
        """What a notebook shows: what was opened, the verdict, and of which steps."""
        lines = [self._describe_run(), self.verdict().sentence(), self.step_summary().sentence()]
        return "<br>".join(html.escape(line) for line in lines)

    def _describe_run(self) -> str:
        ranks = sorted({trace.rank for trace in self.traces if trace.rank >= 0})
        kinds = sorted({source.format for source in self.sources if source.format})
        parts = [f"{len(self.traces)} trace" + ("s" if len(self.traces) > 1 else "")]
        if len(ranks) > 1:
            parts.append(f"{len(ranks)} ranks")
        parts += kinds
        if self.unreadable:
            parts.append(f"{len(self.unreadable)} unreadable")
        return f"{told_path(self.path)}: {', '.join(parts)}"

    @property
    def paths(self) -> list[Path]:
        """Where each trace comes from: its run directory or file."""
        return [source.path for source in self.sources]

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
        from steplens.readers.ranks import no_such_rank

        raise no_such_rank(self.path, rank, {trace.rank for trace in self.traces})

    def table(self, name: str, by: str | None = None, *, per_step: bool = False) -> pl.DataFrame:
        """The table of any name that ``steplens table`` lists, those of installed packages among them.

        Args:
            name: of an analysis, which is the name of the method here that gives it, or of one of its groups, such as
                ``operators_by_shape``; or of a recorded table, such as ``marks``, ``recorded_`` in front where an analysis has
                its name.
            by: one of its groups; None is the first.
            per_step: of a step, as means over the chosen steps, where a table has sums over the whole recording.

        Raises:
            ValueError: there is no such table or group; the message names similar ones.
        """
        from steplens.analysis.catalogue import check_table, find_analysis, recorded_table

        check_table(name, by)
        if (recorded := recorded_table(name)) is not None:
            return self._recorded_rows(recorded)
        analysis, group = find_analysis(name)
        group = by if by is not None else group
        options = {"per_step": True} if per_step and analysis.has_step_rows(group) else {}
        return self._answer_analysis(analysis, group, options)

    def _recorded_rows(self, name: str) -> pl.DataFrame:
        """A recorded table of all traces; one that was not recorded has no rows."""
        empty = pl.LazyFrame(schema=SCHEMA[name])
        frames = [empty if (frame := trace.lazy(name)) is None else frame for trace in self.traces]
        if len(frames) == 1:
            return frames[0].collect()
        told_apart = [
            frame.with_columns(rank=pl.lit(trace.rank, dtype=pl.Int64), window=pl.lit(path.name))
            for frame, trace, path in zip(frames, self.traces, self.paths, strict=True)
        ]
        return pl.concat(told_apart, how="diagonal_relaxed").collect()

    def _answer_table(self, name: str, by: str | None = None, **options: Any) -> pl.DataFrame:
        from steplens.analysis.catalogue import find_analysis

        return self._answer_analysis(find_analysis(name)[0], by, options)

    def _answer_analysis(self, analysis: Analysis, by: str | None, options: dict[str, Any]) -> pl.DataFrame:
        work_out = partial(analysis.answer, self, by, **options)
        if analysis.name not in _KEPT_TABLES:
            return work_out()
        return self._asked_before.answer_question(f"{analysis.name} by {by} with {sorted(options.items())}", work_out)

    @cached_property
    def _asked_before(self) -> AskedBefore:
        from steplens.trace.cache.asked_before import AskedBefore

        return AskedBefore(self.traces)

    def steps(self, *, whole_trace_without_steps: bool = False) -> pl.DataFrame:
        """Times of every step; see ``analysis.steps.times.step_times``. Several traces add the columns ``rank`` and ``window``.

        Args:
            whole_trace_without_steps: a trace without steps gives one row for all of it, ``step`` null.
        """
        return self._answer_table("steps", whole_trace_without_steps=whole_trace_without_steps)

    def step_basis(self, *, apart: bool = False) -> str:
        """What tables per step are of, in words: "per step (mean of steps 2-5)", or sums of the whole recording.

        Args:
            apart: the table has rows of each trace, not of all together.
        """

        def describe_basis() -> str:
            from steplens.analysis.steps.basis import basis_sentence

            return basis_sentence(self.traces, apart=apart)

        return self._asked_before.answer_question(f"basis apart {apart}", describe_basis)

    def step_summary(self) -> StepSummary:
        """The figures of a step, over the chosen steps of all traces; see ``analysis.steps.summary.StepSummary``."""
        return self._step_summary

    @cached_property
    def _step_summary(self) -> StepSummary:
        from steplens.analysis.steps.summary import summarize_steps

        return summarize_steps(self.traces)

    def verdict(self) -> Verdict:
        """What holds a step up, how sure that is, and where to look; see ``analysis.verdict.verdict``."""
        return self._step_verdict

    @cached_property
    def _step_verdict(self) -> Verdict:
        from steplens.analysis.verdict import verdict

        return verdict(self.traces, self._step_summary)

    def advise(self, language: str = "en") -> pl.DataFrame:
        """What to change, most valuable first; see ``advice.table.advice_table``.

        Args:
            language: "en" or "zh".
        """
        # advice rests on this module; the package's public name leads there without an arrow back
        table: pl.DataFrame = importlib.import_module("steplens").advise(self, language)
        return table

    def idle(self) -> pl.DataFrame:
        """Idle time of the device per step and cause; see ``analysis.device.idle.idle_causes``."""
        return self._answer_table("idle")

    def operators(self, by: str = "name", *, annotations: bool = False) -> pl.DataFrame:
        """Operator calls in groups; see ``analysis.operators.operators.operators``. Several traces are added up.

        Args:
            by: what makes a group.
            annotations: with the ranges that somebody marked as well: those of steps, optimizers, ``record_function()``.
        """
        return self._answer_table("operators", by, **({"annotations": True} if annotations else {}))

    def kernels(self, by: str = "name") -> pl.DataFrame:
        """Device tasks by name, type, category or kind; see ``analysis.device.kernels.kernel_statistics``."""
        return self._answer_table("kernels", by)

    def op_statistic(self) -> pl.DataFrame:
        """Device tasks by type and core; see ``analysis.device.kernels.op_statistic``."""
        return self._answer_table("op_statistic")

    def flops(self, by: str = "name") -> pl.DataFrame:
        """Arithmetic of the operators, how fast, and how close to the device's peak; see ``analysis.operators.flops.flops``."""
        return self._answer_table("flops", by)

    def bound(self, by: str = "step") -> pl.DataFrame:
        """Whether the host or the device limits each step or operator; see ``analysis.device.bound.bound``."""
        return self._answer_table("bound", by)

    def storms(self) -> pl.DataFrame:
        """Stretches of tasks that run shorter than issuing them takes; see ``analysis.device.storms.storms``."""
        return self._answer_table("storms")

    def shapes(self, by: str = "operator") -> pl.DataFrame:
        """How input shapes change from step to step; see ``analysis.operators.shapes.shapes``."""
        return self._answer_table("shapes", by)

    def launches(self) -> pl.DataFrame:
        """What launching costs the host, by runtime call; see ``analysis.device.queue.launch_statistics``."""
        return self._answer_table("launches")

    def task_launches(self) -> pl.DataFrame:
        """Every device task with the runtime call that launched it; see ``analysis.device.queue.launches``."""
        return self._answer_table("task_launches")

    def queues(self) -> pl.DataFrame:
        """How full the queue of each stream was; see ``analysis.device.queue.queue_summary``."""
        return self._answer_table("queues")

    def api_calls(self) -> pl.DataFrame:
        """Runtime and driver calls by layer and name; see ``analysis.device.api.api_statistic``."""
        return self._answer_table("api_calls")

    def device_time(self) -> pl.DataFrame:
        """Idle, computing and other time of each device; see ``analysis.device.breakdown.temporal_breakdown``."""
        return self._answer_table("device_time")

    def device_timeline(self) -> pl.DataFrame:
        """The whole time line of the devices in parts; see ``analysis.device.device_timeline.device_timeline``."""
        return self._answer_table("device_timeline")

    def device_kinds(self) -> pl.DataFrame:
        """How long which kinds of task ran at once; see ``analysis.device.breakdown.kind_breakdown``."""
        return self._answer_table("device_kinds")

    def stream_idle(self) -> pl.DataFrame:
        """Why each stream was idle between two tasks; see ``analysis.device.breakdown.idle_breakdown``."""
        return self._answer_table("stream_idle")

    def process_groups(self) -> pl.DataFrame:
        """The process groups, what for and at what cost; see ``analysis.cluster.groups.group_table.process_group_table``."""
        return self._answer_table("process_groups")

    def parallel_layout(self) -> pl.DataFrame:
        """How many ranks share what; see ``analysis.cluster.groups.group_table.parallel_layout``."""
        return self._answer_table("parallel_layout")

    def group_overlap(self, by: str = "kind") -> pl.DataFrame:
        """Communication under computing and exposed, by kind of group; see ``analysis.cluster.groups.group_overlap``."""
        return self._answer_table("group_overlap", by)

    def overlap(self) -> pl.DataFrame:
        """How much of the communication happens beside computing; see ``analysis.device.breakdown.communication_overlap``."""
        return self._answer_table("overlap")

    def communication(self, by: str = "operation") -> pl.DataFrame:
        """Waiting, moving data and overlap by operation, group, size, step or rank; see ``communication_operations``."""
        return self._answer_table("communication", by)

    def communication_operations(self) -> pl.DataFrame:
        """Every communication operation of every rank; see ``analysis.cluster.communication_operations``."""
        return self._answer_table("communication_operations")

    def collectives(self) -> pl.DataFrame:
        """How long each collective took, and how long its size explains; see ``analysis.cluster.collectives``."""
        return self._answer_table("collectives")

    def bus_bandwidth(self, by: str = "size") -> pl.DataFrame:
        """Algorithm and bus bandwidth by size or of each message; see ``analysis.cluster.groups.bandwidth.bus_bandwidth``."""
        return self._answer_table("bus_bandwidth", by)

    def arrivals(self) -> pl.DataFrame:
        """When each rank came to each collective; see ``analysis.cluster.arrivals.arrivals``."""
        from steplens.analysis.cluster.arrivals import arrivals

        return arrivals(self.traces)

    def rank_clocks(self) -> pl.DataFrame:
        """Offset and drift of each rank's clock, with error bars; see ``analysis.cluster.clocks.job_clocks.rank_clocks``."""
        return self._answer_table("rank_clocks")

    def hold_ups(self) -> pl.DataFrame:
        """How long each rank held up the others in each step; see ``analysis.cluster.arrivals.hold_ups``."""
        from steplens.analysis.cluster.arrivals import hold_ups

        return hold_ups(self.arrivals())

    def waits(self) -> pl.DataFrame:
        """Which rank waited for which, a matrix; see ``analysis.cluster.communication_pairs.waits``."""
        return self._answer_table("waits")

    def pairs(self) -> pl.DataFrame:
        """What each rank sent to each other one, a matrix; see ``analysis.cluster.communication_pairs.pairs``."""
        return self._answer_table("pairs")

    def links(self) -> pl.DataFrame:
        """What moved over each link, as the communication library measured it; see ``analysis.cluster.links.links``."""
        return self._answer_table("links")

    def communication_times(self) -> pl.DataFrame:
        """Times of every communication operation; see ``analysis.cluster.measured_communication.communication_times``."""
        return self._answer_table("communication_times")

    def communication_bandwidth(self) -> pl.DataFrame:
        """Bandwidth by transport and packet size; see ``analysis.cluster.measured_communication.communication_bandwidth``."""
        return self._answer_table("communication_bandwidth")

    def communication_matrix(self) -> pl.DataFrame:
        """Operations of each link that tell most; see ``analysis.cluster.measured_communication.communication_matrix``."""
        return self._answer_table("communication_matrix")

    def ranks(self) -> pl.DataFrame:
        """The parts of a step of every rank beside each other; see ``analysis.cluster.ranks.ranks``."""
        from steplens.analysis.cluster.ranks import UnreadRank, ranks
        from steplens.readers.common.rank_names import rank_of_path

        unread = [UnreadRank(rank_of_path(error.path), f"could not be read: {error.problem}") for error in self.unreadable]
        return ranks(self.traces, unread)

    def step_trace(self) -> pl.DataFrame:
        """Interval, forward and backward, and tail of each step; see ``analysis.step_trace.step_trace.step_trace``."""
        return self._answer_table("step_trace")

    def step_trace_averages(self) -> pl.DataFrame:
        """Averages of the parts of the step trace; see ``analysis.step_trace.step_trace.averages``."""
        return self._answer_table("step_trace_averages")

    def step_collectives(self) -> pl.DataFrame:
        """When the collectives of each step began and ended; see ``analysis.step_trace.step_trace.step_collectives``."""
        return self._answer_table("step_collectives")

    def rank_quantiles(self, by: str = "kernel") -> pl.DataFrame:
        """How long kernels or operators take over the ranks; see ``analysis.cluster.over_ranks.rank_quantiles``."""
        return self._answer_table("rank_quantiles", by)

    def idle_gaps(self) -> pl.DataFrame:
        """The largest gaps in the work of all devices; see ``analysis.cluster.over_ranks.idle_gaps.idle_gaps``."""
        return self._answer_table("idle_gaps")

    def cluster_steps(self) -> pl.DataFrame:
        """The parts of the steps of all ranks that tell of parallelism; see ``analysis.cluster.cluster_steps.cluster_steps``."""
        return self._answer_table("cluster_steps")

    def work(self) -> pl.DataFrame:
        """Arithmetic of every rank in a step; see ``analysis.operators.rank_flops.work``."""
        return self._answer_table("work")

    def communication_costs(self) -> pl.DataFrame:
        """How long every rank moved data and waited in each step; see ``analysis.cluster.links.communication_costs``."""
        return self._answer_table("communication_costs")

    def core_types(self) -> pl.DataFrame:
        """Types of operators of AI Cores; see ``analysis.operators.operator_tables.core_types``."""
        return self._answer_table("core_types")

    def core_operators(self) -> pl.DataFrame:
        """Operators of AI Cores with their work; see ``analysis.operators.operator_tables.core_operators``."""
        return self._answer_table("core_operators")

    def ai_cpu_types(self) -> pl.DataFrame:
        """Kernels of AI CPUs by type; see ``analysis.operators.operator_tables.ai_cpu_types``."""
        return self._answer_table("ai_cpu_types")

    def dynamic_shapes(self, by: str = "operator") -> pl.DataFrame:
        """Times of operators or kernels from step to step; see ``analysis.operators.dynamic_shape.sums``."""
        return self._answer_table("dynamic_shapes", by)

    def processors(self) -> pl.DataFrame:
        """How busy processors were while the data pipeline worked; see ``analysis.data_loading.pipeline_cpu.cpu_samples``."""
        return self._answer_table("processors")

    def pipeline(self) -> pl.DataFrame:
        """Operations of the data pipeline and their queues; see ``analysis.data_loading.data_pipeline.operations``."""
        return self._answer_table("pipeline")

    def loader_stages(self) -> pl.DataFrame:
        """How long each stage of a DataLoader's batches took; see ``analysis.data_loading.loaders.stages``."""
        return self._answer_table("loader_stages")

    def loader_workers(self) -> pl.DataFrame:
        """How busy each worker of a DataLoader was; see ``analysis.data_loading.loaders.workers``."""
        return self._answer_table("loader_workers")

    def loader_queues(self) -> pl.DataFrame:
        """Batches that were ready when the loop asked for one; see ``analysis.data_loading.loaders.queue_depths``."""
        return self._answer_table("loader_queues")

    def loader_first_batches(self) -> pl.DataFrame:
        """How long each epoch took to its first batch; see ``analysis.data_loading.loaders.first_batches``."""
        return self._answer_table("loader_first_batches")

    def loader_step_waits(self) -> pl.DataFrame:
        """How long each step waited for batches; see ``analysis.data_loading.loaders.step_waits``."""
        return self._answer_table("loader_step_waits")

    def python_hotspots(self, by: str = "function") -> pl.DataFrame:
        """Sampled Python stacks by function, line or thread; see ``analysis.operators.python_hotspots.python_hotspots``."""
        return self._answer_table("python_hotspots", by)

    def memory(self) -> pl.DataFrame:
        """Peak memory per device; see ``analysis.memory.memory.memory_summary``."""
        return self._answer_table("memory")

    def memory_peak(self, by: str = "operator") -> pl.DataFrame:
        """What the memory at its peak was used for; see ``analysis.memory.memory_peak.memory_peak``."""
        return self._answer_table("memory_peak", by)

    def memory_categories(self) -> pl.DataFrame:
        """What tensors were used for at the peak; see ``analysis.memory.category_peak.category_peak``.

        Known where the profiler that recorded wrote it (``export_memory_timeline``); no rows elsewhere.

        Raises:
            InputError: the file with the categories is damaged.
        """
        return self._answer_table("memory_categories")

    def memory_growth(self) -> pl.DataFrame:
        """Whether memory grows from step to step, over all windows; see ``analysis.memory.memory_growth.memory_growth``."""
        return self._answer_table("memory_growth")

    def memory_churn(self, by: str = "step") -> pl.DataFrame:
        """What is allocated and soon given back; see ``analysis.memory.memory_churn.memory_churn``."""
        return self._answer_table("memory_churn", by)

    def fragmentation(self) -> pl.DataFrame:
        """What the allocator reserves beyond use; see ``analysis.memory.fragmentation.fragmentation``."""
        return self._answer_table("fragmentation")

    def allocations(self) -> pl.DataFrame:
        """Every allocation, with what ended it and who wanted it; see ``analysis.memory.memory.operator_memory``."""
        return self._answer_table("allocations")

    def health(self) -> pl.DataFrame:
        """Findings about the data itself, with the path they concern; no rows when nothing is wrong."""
        return self._all_findings

    @cached_property
    def _all_findings(self) -> pl.DataFrame:
        if self.unreadable:
            return self._collect_findings()
        # which name what they are about as it was opened
        places = [os.fsdecode(path) for path in (self.path, *self.paths)]
        return self._asked_before.answer_question(f"health at {places}", self._collect_findings)

    def _collect_findings(self) -> pl.DataFrame:
        from steplens.analysis.operators.recording_cost import find_recording_cost
        from steplens.analysis.stored_figures import find_contradictions

        findings = []
        for source, trace in zip(self.sources, self.traces, strict=True):
            findings.append((source.path, trace.once(findings_of_source)))
            computed = (*find_contradictions(trace), *find_recording_cost(trace))
            findings.append((source.path, frame_of(computed) if computed else None))
        for error in self.unreadable:
            lost = finding("unreadable", ERROR, 1, error.problem, RANK_COMPARISON)
            findings.append((error.path, frame_of([lost])))
        findings.append((self.path, self._cross_trace_findings))
        if len(self.traces) > 1:
            from steplens.analysis.cluster.clocks.job_clocks import find_clock_trouble

            findings.append((self.path, frame_of(find_clock_trouble(self.traces))))
        schema = {**SCHEMA["health"], "source": pl.String()}
        frames = [
            frame.with_columns(source=pl.lit(told_path(path))) for path, frame in findings if frame is not None and frame.height
        ]
        return pl.concat([pl.DataFrame(schema=schema), *frames])

    @cached_property
    def _cross_trace_findings(self) -> pl.DataFrame:
        """What the traces say about each other."""
        from steplens.trace.building import checks

        together = [(source.path, trace) for source, trace in zip(self.sources, self.traces, strict=True)]
        return frame_of(checks.compare_traces(together))

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
        """Answer a SQL query over the recorded tables (``ops``, ``kernels``, ``steps`` ...) and the answers (``operators`` ...).

        Several traces add the columns ``rank`` and ``window`` to recorded tables; see ``analysis.queries.answer_query``.

        Raises:
            InputError: the query is wrong; the message says where.
        """
        from steplens.analysis.queries import QueryError, answer_query

        try:
            return answer_query(self, query)
        except QueryError as error:
            raise InputError(self.path, error.problem, error.remedy) from error


def findings_of_source(trace: Trace) -> pl.DataFrame | None:
    """The findings about a source that were made while it was read; they are asked of all traces together."""
    return trace.health


def peak_by_category(trace: Trace) -> pl.DataFrame:
    """What tensors were used for at the peak, where the profiler that recorded wrote it; see ``Run.memory_categories``."""
    from steplens.analysis.memory.category_peak import category_peak
    from steplens.analysis.memory.memory_categories import EVENTS
    from steplens.readers.steplens_run import memory_categories

    events = trace.once(memory_categories.of_trace)
    return category_peak(pl.DataFrame(schema=EVENTS) if events is None else events)


def open_run(
    path: str | os.PathLike[str],
    progress: Callable[[int, int, Path], None] | None = None,
    bytes_progress: Callable[[Path, int, int], None] | None = None,
    *,
    executor: TaskExecutor | None = None,
) -> Run:
    """Open a run directory, a folder of them, or a trace file that steplens did not write.

    Args:
        path: what to open, a path or the URL of anything that fsspec knows. A folder in which some windows cannot be read opens
            with the rest; ``health()`` names them.
        progress: told before a trace is read: how many are read already, how many there are, and its path.
        bytes_progress: told some times a second while a large file is read: which, how many of its bytes were, and how many it
            has; what told of reading around this call is not told then.
        executor: where traces are read, and what is asked of each of them is worked out: a ``concurrent.futures.Executor``, or
            what has its ``submit``. Its processes have to see ``path`` under the same name, and credentials for a URL in their
            environment. None is this machine.

    Raises:
        InputError: nothing at ``path`` can be read; the message says why and what to do.
    """
    from steplens.readers.common import reading
    from steplens.readers.detect import find_traces
    from steplens.readers.many import load_all

    top = locate_path(path)
    traces: list[tuple[Source, Trace]] = []
    unreadable: list[InputError] = []
    unread: list[Unread] = []
    told_bytes = reading.told_to(bytes_progress) if bytes_progress is not None else contextlib.nullcontext()
    with listed_once(), told_bytes:
        captures = find_traces(top, unread)
        all_loaded = load_all(top, captures, progress, executor)
    for found, loaded in zip(captures, all_loaded, strict=True):
        if isinstance(loaded, InputError):
            unreadable.append(loaded)
        else:
            traces.append((Source(found.path, found.format, found.reason, found.ignored), loaded))
    if not traces:
        if len(unreadable) == 1:
            raise unreadable[0]
        raise InputError(top, f"holds {len(unreadable)} runs and none can be read; the first: {unreadable[0].problem}")
    run = Run(top, traces, unreadable, unread)
    run.executor = executor
    return run


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

    top = locate_path(path)
    drawn = draft(top, is_laid_out)
    if drawn is None:
        return None
    found, trace, sample = drawn
    run = Run(top, [(Source(found.path, found.format), trace)], [])
    return Draft(run, sample.bytes, sample.of_bytes, is_kept(found))
