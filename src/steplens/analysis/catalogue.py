"""The catalogue of questions: every question that a run answers with a table, once.

The methods of ``Run``, ``steplens table``, the tables of the web UI and docs/analyses.md follow from it, so that a name means one
table everywhere. Installed packages add to it with entry points of the group ``steplens.analyses``.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import logging
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from steplens.common import extensions
from steplens.trace.names import FACTOR, MOMENT, RECORDED_TABLES

if TYPE_CHECKING:
    import polars as pl

    from steplens.trace.trace import Trace

_LOG = logging.getLogger("steplens.analysis")


class TracesOfRun(Protocol):
    """What an analysis needs of a ``Run``: its traces and where each comes from."""

    @property
    def traces(self) -> Sequence[Trace]:
        """One per run directory or file."""

    @property
    def paths(self) -> Sequence[Path]:
        """Of each trace its run directory or file."""


@dataclass(frozen=True)
class Analysis:
    """One question.

    Attributes:
        name: of the table, and of the method of ``Run`` that gives it.
        question: in a few words.
        function: what answers it, or ``module:name``, which is imported when it is first asked; its first argument follows from
            ``scope``, and ``by`` follows where there are ``groups``.
        scope: "trace": one trace, and the rows of several one after the other; "traces": all traces together, or one alone;
            "run": the ``Run``, which is never asked about one of its traces alone.
        groups: what ``by`` may be, the default first; empty where the function has no such argument.
        title: for people, of pages; the question by default. By group, where there are ``groups``.
        units: of columns whose names do not tell their unit by the rules of ``trace.columns``.
        options: further arguments of the function.
        windows: whether pages, too, tell the rows of several traces apart by ``rank`` and ``window`` behind them, not by
            ``trace`` and ``rank`` in front.
        aliases: earlier names of its tables, each with its group.
        per_step: whether its rows can be of a step, as means over the chosen steps, instead of sums over the recording: the
            function then has an argument ``per_step``. Rows of single steps are what they are in either case.

    Raises:
        ValueError: the name is none that an address and a command can have.
    """

    name: str
    question: str
    function: str | Callable[..., pl.DataFrame]
    scope: Literal["trace", "traces", "run"] = "trace"
    groups: tuple[str, ...] = ()
    title: str | Mapping[str, str] = ""
    units: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    windows: bool = False
    aliases: Mapping[str, str | None] = field(default_factory=dict)
    per_step: bool = False

    def __post_init__(self) -> None:
        for name in (self.name, *self.groups):
            if not re.fullmatch("(?!recorded_|stored_)[a-z]+(_[a-z]+)*", name):
                raise ValueError(f"{name!r} is no name of a table or group: small letters with _ between words")

    def __call__(self, run: TracesOfRun, by: str | None = None) -> pl.DataFrame:
        """The answer for one run.

        Args:
            run: the run.
            by: one of ``groups``; None is the first.

        Raises:
            ValueError: ``by`` is none of them.
        """
        self.check_group(by)
        return self.answer(run, by)

    def check_group(self, by: str | None) -> None:
        """Whether it has a group of this name.

        Raises:
            ValueError: it has none.
        """
        if by is not None and by not in self.groups:
            allowed = f"one of {', '.join(self.groups)}" if self.groups else "left out"
            raise ValueError(f"{self.name} by {by!r}: it must be {allowed}")

    def answer(self, run: TracesOfRun, by: str | None = None, **options: Any) -> pl.DataFrame:
        """The answer for one run; the function itself looks at ``by``.

        Args:
            run: the run.
            by: one of ``groups``; None is the first.
            options: further arguments of the function.
        """
        function = _load_function(self.function) if isinstance(self.function, str) else self.function
        groups = (by if by is not None else self.groups[0],) if self.groups else ()
        options = {**self.options, **options}
        if self.scope == "trace":
            return _concat_answers(run, lambda trace: function(trace, *groups, **options))
        return function(run if self.scope == "run" else run.traces, *groups, **options)

    def tables(self) -> Iterator[tuple[str, str | None]]:
        """The names of its tables, each with its group: ``operators``, ``operators_by_shape`` ..."""
        for by in self.groups or (None,):
            yield (self.name if by in (None, *self.groups[:1]) else f"{self.name}_by_{by}"), by

    def has_step_rows(self, by: str | None) -> bool:
        """Whether one of its tables can be of a step."""
        return self.per_step and (by or (self.groups or ("",))[0]) != STEP

    def names(self) -> dict[str, str | None]:
        """What its tables are called, earlier names included, each with its group."""
        return {**dict(self.tables()), **self.aliases}

    def title_of(self, by: str | None) -> str:
        """The title of one of its tables."""
        title = self.title if isinstance(self.title, str) else self.title.get(by or "", "")
        return title or self.question[0].upper() + self.question[1:] + (f", by {by}" if by is not None else "")


def _load_function(path: str) -> Callable[..., pl.DataFrame]:
    module, _, name = path.partition(":")
    function: Callable[..., pl.DataFrame] = operator.attrgetter(name)(importlib.import_module(module, __package__))
    return function


def _concat_answers(run: TracesOfRun, function: Callable[[Trace], pl.DataFrame]) -> pl.DataFrame:
    import polars as pl

    from steplens.analysis.tools.joined_rows import join_rows

    if len(run.traces) == 1:
        return function(run.traces[0])
    return join_rows(
        function(trace).with_columns(rank=pl.lit(trace.rank, dtype=pl.Int64), window=pl.lit(path.name))
        for path, trace in zip(run.paths, run.traces, strict=True)
    )


#: a group whose rows are single steps
STEP = "step"
#: before names of recorded tables, most of which an analysis is called like
RECORDED_PREFIX = "recorded_"

#: in the order of the documentation
ANALYSES: tuple[Analysis, ...] = (
    Analysis("steps", "where the time of each step went, on the device and on the host", ".steps.times:step_times",
        title="Step breakdown"),
    Analysis("step_trace", "interval, forward and backward, and tail of each step",
        ".step_trace.step_trace:step_trace", units={"forward_ns": MOMENT, "backward_ns": MOMENT},
        title="Step trace: interval, forward and backward, tail"),
    Analysis("step_trace_averages", "averages of the parts of the step trace", ".step_trace.step_trace:part_averages",
        title="Step trace: averages"),
    Analysis("step_collectives", "when each collective of a step began and ended", ".step_trace.step_trace:step_collectives",
        title="Collectives per step"),
    Analysis("bound", "whether the host or the device limits each step or operator", ".device.bound:bound",
        groups=("step", "operator"), windows=True, units={"device_percent": FACTOR}, per_step=True,
        title={"step": "Host bound or device bound, by step", "operator": "Host bound or device bound, by operator"}),
    Analysis("idle", "why the device was idle inside each step", ".device.idle:idle_causes",
        aliases={"idle_causes": None},
        title="Idle causes of the device"),
    Analysis("operators", "which operators took the time", ".operators.operators:operators_of_traces", "traces",
        groups=("name", "category", "shape", "stack", "line", "module"), aliases={"modules": "module"}, per_step=True,
        title={"name": "Operators by name", "category": "Operators by category", "shape": "Operators by input shape",
            "stack": "Operators by call stack", "line": "Operators by source line", "module": "Operators by module"}),
    Analysis("shapes", "which operators see new input shapes, and what that costs", ".operators.shapes:shapes",
        groups=("operator", "step"), windows=True,
        title={"operator": "Operators with new input shapes", "step": "New input shapes per step"}),
    Analysis("flops", "how much arithmetic, how fast, how close to the device's peak", ".operators.flops:flops",
        groups=("name", "shape", "module", "line", "step"), windows=True, per_step=True,
        title={"name": "FLOPs and roofline, by operator", "shape": "FLOPs by input shape", "module": "FLOPs by module",
            "line": "FLOPs by source line", "step": "FLOPs by step"}),
    Analysis("kernels", "which device tasks took the time", ".device.kernels:kernel_statistics",
        groups=("name", "type", "category", "kind"), per_step=True,
        title={"name": "Kernels by name", "type": "Kernels by type", "category": "Kernels by category",
            "kind": "Kernels by kind"}),
    Analysis("op_statistic", "which types of device tasks took the time of which cores", ".device.kernels:op_statistic",
        per_step=True,
        title="Kernels by type and core"),
    Analysis("storms", "where tasks run shorter than issuing them takes", ".device.storms:storms", windows=True,
        title="Launch-bound kernels"),
    Analysis("launches", "what launching costs the host, by runtime call", ".device.queue:launch_statistics",
        aliases={"launch_statistics": None},
        title="Launch overhead by runtime call"),
    Analysis("task_launches", "which runtime call launched each device task, and how long it took to start",
        ".device.queue:launches",
        title="Launches and their kernels"),
    Analysis("queues", "how many launched tasks wait on each stream", ".device.queue:queue_summary",
        aliases={"launch_queues": None},
        title="Queue depth per stream"),
    Analysis("api_calls", "which runtime calls took the time", ".device.api:api_statistic",
        aliases={"runtime_calls": None},
        title="Runtime calls"),
    Analysis("device_time", "how long each device computed, did something else, and idled",
        ".device.breakdown:temporal_breakdown", options={"per_device": True},
        title="Device time"),
    Analysis("device_timeline", "the whole time line of the devices, what of it was exposed, and idle time",
        ".device.device_timeline:device_timeline", windows=True,
        title="Device states over the whole recording"),
    Analysis("device_kinds", "which kinds of task ran at once", ".device.breakdown:kind_breakdown",
        title="Concurrent kinds of device work"),
    Analysis("stream_idle", "why each stream idled between two tasks", ".device.breakdown:idle_breakdown",
        aliases={"device_idle": None},
        title="Stream idle time by cause"),
    Analysis("memory", "the peak of each device", ".memory.memory:memory_summary",
        title="Memory peaks"),
    Analysis("memory_peak", "what the memory at its peak was used for", ".memory.memory_peak:memory_peak",
        groups=("operator", "module", "line", "phase", "block"), windows=True,
        title={"operator": "Memory at the peak, by operator", "module": "Memory at the peak, by module",
            "line": "Memory at the peak, by source line", "phase": "Memory at the peak, by phase",
            "block": "Memory at the peak, by block"}),
    Analysis("memory_categories", "what tensors were used for at the peak, as the profiler saw them",
        "steplens.run:peak_by_category", windows=True,
        title="Memory at the peak, by tensor category"),
    Analysis("memory_growth", "whether memory grows from step to step", ".memory.memory_growth:memory_growth", "traces",
        title="Memory growth per step"),
    Analysis("memory_churn", "what is allocated and soon given back", ".memory.memory_churn:memory_churn",
        groups=("step", "operator", "module", "line"), windows=True,
        title={"step": "Short-lived allocations, by step", "operator": "Short-lived allocations, by operator",
            "module": "Short-lived allocations, by module", "line": "Short-lived allocations, by source line"}),
    Analysis("fragmentation", "what the allocator reserves beyond use", ".memory.fragmentation:fragmentation", windows=True,
        title="Memory fragmentation"),
    Analysis("allocations", "every allocation, with what ended it and who wanted it", ".memory.memory:operator_memory",
        title="Allocations"),
    Analysis("communication", "waiting, moving data and overlap", ".cluster.communication_operations:communication", "traces",
        groups=("operation", "group", "size", "step", "rank"),
        title={"operation": "Communication by operation", "group": "Communication by group",
            "size": "Communication by message size", "step": "Communication by step", "rank": "Communication by rank"}),
    Analysis("communication_operations", "every communication operation of every rank",
        ".cluster.communication_operations:communication_operations", "traces",
        title="Single communication operations"),
    Analysis("collectives", "how long each collective took, and how long its size explains",
        ".cluster.collectives:collective_times", "traces",
        title="Collectives one by one"),
    Analysis("bus_bandwidth", "algorithm and bus bandwidth of collectives and messages, as nccl-tests counts them",
        ".cluster.groups.bandwidth:bus_bandwidth", "traces", groups=("size", "message"),
        title={"size": "Algorithm and bus bandwidth, by message size", "message": "Algorithm and bus bandwidth, by message"},
        units={"message_bytes": "bytes"}),
    Analysis("arrivals", "when each rank came to each collective", "steplens.run:Run.arrivals", "run",
        title="Arrival at collectives, by rank"),
    Analysis("rank_clocks", "offset and drift of the clock of each rank, with error bars",
        ".cluster.clocks.job_clocks:rank_clocks", "traces", units={"first_message_ns": MOMENT, "last_message_ns": MOMENT},
        title="Clocks of the ranks"),
    Analysis("hold_ups", "how long each rank held up the others in each step", "steplens.run:Run.hold_ups", "run",
        title="Delay that each rank causes"),
    Analysis("waits", "which rank waited for which", ".cluster.communication_pairs:waits", "traces",
        title="Wait matrix of the ranks"),
    Analysis("pairs", "what each rank sent to each other one", ".cluster.communication_pairs:pairs", "traces",
        title="Traffic between ranks"),
    Analysis("links", "what moved over each link, as the communication library measured it", ".cluster.links:links", "traces",
        title="Link traffic, as measured by the library"),
    Analysis("process_groups", "which process groups there are, what for, and what they cost in a step",
        ".cluster.groups.group_table:process_group_table", "traces",
        title="Process groups"),
    Analysis("parallel_layout", "how many ranks share data, tensors and pipeline stages",
        ".cluster.groups.group_table:parallel_layout", "traces",
        title="Parallel layout"),
    Analysis("group_overlap", "how much of the communication of each kind of group computing hides",
        ".cluster.groups.group_overlap:group_overlap", "traces", groups=("kind", "rank", "step"),
        title={"kind": "Exposed communication, by kind of group", "rank": "Exposed communication, by rank and kind of group",
            "step": "Exposed communication, by step and kind of group"}),
    Analysis("overlap", "how much of the communication computing hides", ".device.breakdown:communication_overlap",
        options={"per_device": True}, aliases={"communication_overlap": None},
        title="Overlap of communication and computation"),
    Analysis("communication_times", "how long each communication operation moved data, waited and synchronized",
        ".cluster.measured_communication:communication_times",
        title="Communication times, as measured by the library"),
    Analysis("communication_bandwidth", "how fast each communication operation was, by transport and size of its packets",
        ".cluster.measured_communication:communication_bandwidth",
        title="Bandwidth by packet size"),
    Analysis("communication_matrix", "which operations of each link tell most, from the fastest to the slowest",
        ".cluster.measured_communication:communication_matrix",
        title="Links between ranks"),
    Analysis("ranks", "the steps of all ranks beside each other", "steplens.run:Run.ranks", "run",
        title="Median step of every rank"),
    Analysis("rank_quantiles", "how long the largest kernels and operators take on the ranks, and on which longest",
        ".cluster.over_ranks.rank_quantiles:rank_quantiles", "traces", groups=("kernel", "operator"),
        title={"kernel": "Quantiles over ranks, by kernel", "operator": "Quantiles over ranks, by operator"}),
    Analysis("idle_gaps", "the largest gaps in the work of all devices, and what each waited for",
        ".cluster.over_ranks.idle_gaps:idle_gaps", "traces",
        title="Largest idle gaps"),
    Analysis("cluster_steps", "the steps of all ranks as far as they tell of the job's parallelism",
        ".cluster.cluster_steps:cluster_steps", "traces",
        title="Steps of all ranks, by parallel mode"),
    Analysis("work", "how much arithmetic every rank does in a step", ".operators.rank_flops:work", "traces",
        title="FLOPs per rank and step"),
    Analysis("communication_costs", "how long every rank moved data and waited in each step",
        ".cluster.links:communication_costs", "traces",
        title="Communication cost per rank and step"),
    Analysis("core_types", "which types of operators took the time of AI Cores", ".operators.operator_tables:core_types",
        windows=True,
        title="AI Core operators by type"),
    Analysis("core_operators", "which operators ran on AI Cores, and their arithmetic as the device counted it",
        ".operators.operator_tables:core_operators", windows=True,
        title="AI Core operators, with counted FLOPs"),
    Analysis("ai_cpu_types", "which types of kernels took the time of AI CPUs", ".operators.operator_tables:ai_cpu_types",
        windows=True,
        title="AI CPU kernels by type"),
    Analysis("dynamic_shapes", "how long operators take from step to step, and with how many shapes",
        ".operators.dynamic_shape:sums", groups=("operator", "kernel"), windows=True,
        title={"operator": "Times and shapes per step, by operator", "kernel": "Times and shapes per step, by kernel"}),
    Analysis("pipeline", "the operations of the data pipeline and their queues", ".data_loading.data_pipeline:operations",
        title="Data pipeline operations"),
    Analysis("processors", "how busy the processors were while the data pipeline worked",
        ".data_loading.pipeline_cpu:cpu_samples", windows=True,
        title="CPU utilization of the data pipeline"),
    Analysis("loader_stages", "how long each stage of a DataLoader's batches took", ".data_loading.loaders:stages",
        title="DataLoader stages"),
    Analysis("loader_workers", "how busy each worker of a DataLoader was", ".data_loading.loaders:workers",
        title="DataLoader workers"),
    Analysis("loader_queues", "how many batches were ready whenever the loop asked for one",
        ".data_loading.loaders:queue_depths", units={"time_ns": MOMENT},
        title="DataLoader queue depth"),
    Analysis("loader_first_batches", "how long each epoch took to its first batch", ".data_loading.loaders:first_batches",
        title="First batch per epoch"),
    Analysis("loader_step_waits", "how long each step waited for batches", ".data_loading.loaders:step_waits",
        title="Data wait per step"),
    Analysis("python_hotspots", "which Python functions the time of each thread is in, as sampled stacks tell",
        ".operators.python_hotspots:python_hotspots", groups=("function", "line", "thread"), windows=True,
        title={"function": "Python hotspots, by function", "line": "Python hotspots, by source line",
            "thread": "Sampled Python threads"}),
    Analysis("health", "what is wrong with the data itself", "steplens.run:Run.health", "run",
        title="Problems in the data"),
)  # fmt: skip


def _by_name(every: Iterable[Analysis]) -> dict[str, tuple[Analysis, str | None]]:
    return {name: (analysis, by) for analysis in every for name, by in analysis.names().items()}


_BY_NAME = _by_name(ANALYSES)


@functools.cache
def analyses() -> tuple[Analysis, ...]:
    """The questions of steplens, and behind them those of installed packages that have names of their own."""
    accepted = list(ANALYSES)
    for added in extensions.load_extensions(extensions.ANALYSES, Analysis):
        if taken := added.names().keys() & _by_name(accepted).keys():
            _LOG.warning("%s %r is left out: there is a table %s already; rename it", extensions.ANALYSES, added.name, min(taken))
        else:
            accepted.append(added)
    return tuple(accepted)


def find_analysis(name: str) -> tuple[Analysis, str | None]:
    """The analysis of a table's name, earlier ones included, and the group of that table.

    Raises:
        ValueError: there is none; the message names similar ones.
    """
    by_name = _BY_NAME if name in _BY_NAME else _by_name(analyses())
    if name not in by_name:
        names = [*by_name, *(name for name in RECORDED_TABLES if name not in by_name)]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
        hint = f"perhaps {' or '.join(map(repr, near))} is meant" if near else "`steplens table` lists them"
        raise ValueError(f"there is no table {name!r}; {hint}")
    return by_name[name]


def recorded_table(name: str) -> str | None:
    """The recorded table that a name means: that of ``recorded_marks`` and, where no analysis is called so, of ``marks``."""
    if name.startswith(RECORDED_PREFIX):
        name = name.removeprefix(RECORDED_PREFIX)
        return name if name in RECORDED_TABLES else None
    return name if name in RECORDED_TABLES and name not in _by_name(analyses()) else None


def check_table(name: str, by: str | None = None) -> None:
    """Whether there is such a table, which can be told before any run is read.

    Raises:
        ValueError: there is no such table or group; the message names similar ones.
    """
    if recorded_table(name) is None:
        analysis, _ = find_analysis(name)
        analysis.check_group(by)
    elif by is not None:
        raise ValueError(f"{name} by {by!r}: it must be left out")
