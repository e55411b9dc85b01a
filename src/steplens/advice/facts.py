"""What the rules look at: the whole steps of one trace and what happened in them, worked out once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.advice.device_profile import DeviceProfile, device_profile
from steplens.advice.finding import LOW, Evidence, Finding, Saving
from steplens.analysis.device.core_utilization import core_utilization
from steplens.analysis.device.idle import idle_causes
from steplens.analysis.steps.phases import PHASES, phase_intervals
from steplens.analysis.steps.summary import StepSummary, summarize_steps
from steplens.analysis.steps.times import chosen_step_times, step_times
from steplens.analysis.stored_figures import find_contradictions
from steplens.analysis.tools import names as of_names
from steplens.analysis.tools.order import in_order
from steplens.analysis.tools.overlap import Int64Array, Intervals, intersect, length_inside, merge_intervals, merged
from steplens.trace.building.devices import device_kind
from steplens.trace.health import WARNING, frame_of, unsafe
from steplens.trace.schema import KIND_COMPUTE, KIND_COPY
from steplens.trace.trace import Trace

Made = TypeVar("Made")

#: columns of ``kernels`` that rules look at
_OF_A_TASK = (
    "id", "name", "type", "kind", "category", "core", "device", "stream", "start_ns", "end_ns", "self_ns", "launch_ns", "op",
    "step", "bytes", "state", "blocks", "mix_blocks", "input_shapes", "input_types", "output_shapes",
)  # fmt: skip

#: message of the automatic marks around torch.save
SAVE_CHECKPOINT = "save_checkpoint"
#: where a step begins on its device, and how long it is there; else on the host
_OF_DEVICE_AND_HOST = (("device_start_ns", "start_ns"), ("device_period_ns", "duration_ns"))
#: parts of a step that a few steps have for all: every worker brings a batch when it has made one
_IN_TURNS = ("data_wait_ns",)
_NO_TIMES = pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64})
#: calls lie in a phase that has so much of their time
_LIES_IN = 0.2
#: names of so few calls are made text once for all questions
_FEW_CALLS = 20_000
#: of more threads a join finds the rows quicker
_FEW_THREADS = 16


if TYPE_CHECKING:
    unlocked_cached_property = cached_property
else:

    class unlocked_cached_property(cached_property):
        """A property that is worked out once, for objects of which each belongs to one thread.

        Before Python 3.12 ``cached_property`` has one lock for all objects: traces would wait for each other.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """What it is of an object."""
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


class Facts:
    """One trace as the rules see it.

    Attributes:
        trace: its tables.

    Args:
        warm_up: the steps of the warm-up count as well.
    """

    def __init__(self, trace: Trace, *, warm_up: bool = False) -> None:
        self.trace = trace
        self._warm_up = warm_up
        self._made: dict[Callable[[Facts], Any], Any] = {}
        #: of several traces, of which this is the first; see ``analyse_once``
        self.answers: dict[tuple[Callable[[Sequence[Trace]], Any], tuple[Trace, ...]], Any] = {}

    @property
    def steps(self) -> pl.DataFrame:
        """``analysis.steps.times.step_times`` of the steps that figures of "a step" are of."""
        # not kept: of thousands of traces these tables take more than all else that is known of them
        steps = step_times(self.trace).filter("complete") if self._warm_up else chosen_step_times(self.trace)
        # of results alone nothing says when a step began
        return steps.drop_nulls("start_ns") if steps["start_ns"].null_count() else steps

    @unlocked_cached_property
    def with_warm_up(self) -> Facts:
        """The same of all complete steps, those of the warm-up too."""
        return Facts(self.trace, warm_up=True)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of these steps."""
        return tuple(self.steps["step"].to_list())

    @unlocked_cached_property
    def step_ns(self) -> float:
        """Step time, the median over these steps; 0 without steps."""
        return self.median("step_time_ns")

    def median(self, column: str) -> float:
        """Median of a column of ``steps``; 0 without steps, and where the figure is not known."""
        return self.part_ns(column) or 0.0

    def part_ns(self, column: str) -> float | None:
        """Median of a column of ``steps``; None without steps, and where the figure is not known."""
        median = self.steps[column].median()
        return float(median) if isinstance(median, (int, float)) else None

    def mean_ns(self, column: str) -> float:
        """Mean of a column of ``steps``, as the bars of the pages have it; 0 without steps, and where the figure is not known."""
        mean = self.steps[column].mean()
        return float(mean) if isinstance(mean, (int, float)) else 0.0

    def most_ns(self, column: str) -> float | None:
        """What a cure of a part of the step saves at most: its median.

        Of a part that comes in turns, as waiting for several workers does, its share of the usual steps, of the median step, as
        the verdict and the overview have the share; at most its mean, which the overview shows (``summarize_steps``).
        """
        if column in _IN_TURNS and not self._warm_up:
            summary = self._step_summary
            part_ns, mean_ns = summary.host.get(column), summary.host_mean_ns
            return part_ns * min(1.0, (summary.host_ns or mean_ns) / mean_ns) if part_ns is not None and mean_ns else part_ns
        return self.part_ns(column)

    def at_most_part(self, length_ns: float, column: str) -> float:
        """``length_ns``, or what a step has of a part that it is of, where that is less (``most_ns``)."""
        most_ns = self.most_ns(column)
        return length_ns if most_ns is None else min(length_ns, most_ns)

    @unlocked_cached_property
    def _step_summary(self) -> StepSummary:
        return summarize_steps([self.trace])

    @property
    def recorded(self) -> pl.DataFrame:
        """Those of ``steps`` of which the device was recorded; all where it was of none."""
        steps = self.steps
        missing = steps["device_period_ns"].null_count()
        return steps.drop_nulls("device_period_ns") if 0 < missing < steps.height else steps

    def typical_ns(self, rows: pl.DataFrame, column: str = "duration_ns", *, on_device: bool = False) -> float:
        """What a step usually has of ``column``, ns: its sums in the steps that have any, their median times their share.

        What every step has counts by the median of the steps, so that a single long step adds nothing; what every third step
        has, a third of what these have.

        Args:
            rows: with step.
            column: a length, ns.
            on_device: of the device, which may not have been recorded in all of these steps.
        """
        of = (self.recorded if on_device else self.steps)["step"]
        sums = rows.group_by("step").agg(pl.col(column).sum()).filter(pl.col("step").is_in(of.implode()))
        return _typical_per_step(sums[column].to_numpy(), of.len())

    def typical_of_each(self, rows: pl.DataFrame, by: str, column: str, *, on_device: bool = False) -> dict[str, float]:
        """Values of ``by`` -> ``typical_ns`` of their rows."""
        of = (self.recorded if on_device else self.steps)["step"]
        sums = rows.filter(pl.col("step").is_in(of.implode())).group_by(by, "step").agg(pl.col(column).sum())
        lengths = sums.filter(pl.col(column) > 0).group_by(by).agg(pl.col(column).median() * pl.len() / of.len())
        return dict(lengths.iter_rows())

    def usual_mean_ns(self, rows: pl.DataFrame, column: str = "duration_ns") -> float:
        """Mean of what a step has of ``column``, ns, of what comes in turns; see ``most_ns``."""
        sums = self.steps.select("step").join(rows.group_by("step").agg(pl.col(column).sum()), on="step", how="left")
        lengths = sums[column].fill_null(0).sort().to_numpy().astype(np.float64)
        return _mean_without_one(lengths) if len(lengths) else 0.0

    def typical_length_ns(self, intervals: Intervals) -> float:
        """The same of intervals, as far as they lie in the device period of a step, or in the step where there is none."""
        return _typical_per_step(length_inside(intervals, *self._step_borders), self.recorded.height)

    @unlocked_cached_property
    def _step_borders(self) -> tuple[Int64Array, Int64Array]:
        """Where the steps of ``recorded`` begin and end."""
        start, length = (pl.coalesce(of_device, host) for of_device, host in _OF_DEVICE_AND_HOST)
        borders = self.recorded.select(start=start, end=start + length)
        return borders["start"].to_numpy(), borders["end"].to_numpy()

    @unlocked_cached_property
    def calls(self) -> pl.DataFrame:
        """The calls of ``ops`` inside these steps, with ``name`` as text and ``duration_ns``; on the threads of the steps only.

        Other threads (autograd's, communication's) do their work beside the step, not in it.
        """
        return self.named_calls.with_columns(pl.col("name").cast(pl.String))

    @unlocked_cached_property
    def named_calls(self) -> pl.DataFrame:
        """``calls`` with ``name`` as it is in ``ops``: comparing, grouping and sorting take a fraction of what text takes."""
        calls = self.on_threads(self.trace.required("ops").filter(pl.col("step").is_in(list(self.numbers))))
        return calls.with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns")).collect()

    @unlocked_cached_property
    def names(self) -> pl.Series:
        """The different names of ``calls``, as text."""
        calls = self.named_calls
        # mostly there are no others
        ops = self.trace.in_memory("ops")
        is_every_call = calls.height == (
            self.trace.required("ops").select(pl.len()).collect().item() if ops is None else ops.height
        )
        return of_names.of_calls(self.trace) if is_every_call else of_names.distinct(calls["name"])

    def on_threads(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """The rows (pid, tid) of the threads that the steps run on."""
        threads = self.trace.required("steps").select("pid", "tid").unique()
        lanes = threads.collect()
        if lanes.height > _FEW_THREADS:
            return rows.join(threads, on=["pid", "tid"], how="semi")
        on_lanes = [(pl.col("pid") == pid) & (pl.col("tid") == tid) for pid, tid in lanes.drop_nulls().iter_rows()]
        return rows.filter(pl.any_horizontal(on_lanes) if on_lanes else pl.lit(False))

    @unlocked_cached_property
    def device(self) -> str:
        """What the devices are: "CPU", "CUDA", "ROCM" or "NPU"."""
        return device_kind(self.trace)

    @unlocked_cached_property
    def profile(self) -> DeviceProfile:
        """What is known of the device."""
        return device_profile(self.trace)

    @unlocked_cached_property
    def tasks(self) -> pl.DataFrame:
        """The device tasks of these steps, in order of device, stream and start; ``duration_ns`` is their device time.

        Tasks of a CPU are its calls, which nest; their device time is their self time.
        """
        tasks = self.trace.required("kernels").select(_OF_A_TASK).filter(pl.col("step").is_in(list(self.numbers)))
        tasks = tasks.rename({"self_ns": "duration_ns"}).filter(pl.col("duration_ns") >= 0)
        return in_order(tasks.collect(), "device", "stream", "start_ns")

    @unlocked_cached_property
    def computing(self) -> pl.DataFrame:
        """Those of ``tasks`` that compute."""
        return self.tasks.filter(pl.col("kind") == KIND_COMPUTE)

    @unlocked_cached_property
    def measured(self) -> pl.DataFrame:
        """``computing`` with the columns of ``analysis.device.core_utilization``, where performance counters were recorded."""
        return self.computing.join(core_utilization(self.trace), left_on="id", right_on="kernel")

    @unlocked_cached_property
    def runtime(self) -> pl.DataFrame:
        """The runtime calls that began in these steps, by start: name, start_ns, end_ns, pid, tid, step, duration_ns."""
        steps = self.steps.sort("start_ns")
        calls = self.trace.required("api").select("name", "start_ns", "end_ns", "pid", "tid").collect()
        calls = in_order(calls, "start_ns")
        if steps.is_empty():
            return calls.clear().with_columns(step=pl.lit(None, dtype=pl.Int64), duration_ns=pl.lit(None, dtype=pl.Int64))
        before = np.searchsorted(steps["start_ns"].to_numpy(), calls["start_ns"].to_numpy(), side="right") - 1
        around = steps.select("step", ends_ns=pl.col("start_ns") + pl.col("duration_ns"))[np.maximum(before, 0)]
        is_inside = (pl.Series(before) >= 0) & (calls["start_ns"] < around["ends_ns"])
        calls = calls.with_columns(around["step"], duration_ns=pl.col("end_ns") - pl.col("start_ns"))
        return calls.filter(is_inside & (calls["duration_ns"] >= 0))

    @unlocked_cached_property
    def saves(self) -> pl.DataFrame:
        """When torch.save kept a step waiting (start_ns, end_ns): automatic marks; other threads save beside the step."""
        if "marks" not in self.trace:
            return _NO_TIMES
        marks = self.trace.required("marks").filter(pl.col("message").cast(pl.String) == SAVE_CHECKPOINT)
        threads = self.trace.required("steps").select("tid").drop_nulls().unique().collect()["tid"]
        if threads.len():
            marks = marks.filter(pl.col("tid").is_in(threads.to_list()).fill_null(True))
        return marks.select("start_ns", "end_ns").drop_nulls().collect()

    @unlocked_cached_property
    def idle(self) -> pl.DataFrame:
        """``analysis.device.idle.idle_causes`` of these steps."""
        return idle_causes(self.trace).filter(pl.col("step").is_in(list(self.numbers)))

    @unlocked_cached_property
    def gaps(self) -> Intervals:
        """When the device did nothing, between the first and the last of its work in these steps; copying is work."""
        columns = ["start_ns", "end_ns"]
        works = self.tasks.filter(pl.col("kind").is_in([KIND_COMPUTE, KIND_COPY])).select(columns)
        operations = self.trace.required("communication").filter(pl.col("step").is_in(list(self.numbers)))
        all_work = pl.concat([works, operations.select(columns).drop_nulls().collect()])
        busy = merged(all_work)
        between = merge_intervals(busy.end[:-1], busy.start[1:])
        return intersect(between, merge_intervals(*self._step_borders))

    def idle_during(self, calls: pl.DataFrame) -> float:
        """How long the device is idle in a step while one of ``calls`` (start_ns, end_ns) runs, ns."""
        return self.typical_length_ns(intersect(self.gaps, merged(calls)))

    def once(self, make: Callable[[Facts], Made]) -> Made:
        """``make(self)``, worked out once: what several rules ask for and nobody else."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast(Made, self._made[make])

    def trusts(self, conclusion: str) -> bool:
        """Whether health calls nothing unsafe that ``conclusion`` (of ``trace.health``) is about.

        Nor do tables that the capture brought along contradict its events there (``analysis.stored_figures``).
        """
        contradictions = find_contradictions(self.trace)
        tables = (self.trace.health, frame_of(contradictions) if contradictions else None)
        return all(health is None or unsafe(health, conclusion, least=WARNING).is_empty() for health in tables)

    def make_finding(
        self,
        rule: str,
        evidence: Iterable[Evidence],
        saving: Saving | None = None,
        *,
        confidence: float,
        subject: str = "",
        part: str = "",
        values: Mapping[str, str | int | float] | None = None,
        urgency: str = LOW,
        calls: pl.DataFrame | None = None,
        recording_ns: float | None = None,
        basis: str = "",
    ) -> Finding:
        """A finding about a step of this trace; see ``Finding``.

        ``calls`` of the step's threads that it is about (start_ns, end_ns) tell in which phases it lies.
        """
        lies_in = self.phases_of(calls) if calls is not None else ()
        fields = (rule, confidence, tuple(evidence), saving, self.step_ns, subject, values or {}, urgency)
        return Finding(*fields, part=part, lies_in=lies_in, recording_ns=recording_ns, basis=basis)

    def phases_of(self, calls: pl.DataFrame) -> tuple[str, ...]:
        """The phases of the host (columns of ``steps``) in which a fifth of the time of some calls lies, and more."""
        phases, times = phase_intervals(self.trace), merged(calls.select("start_ns", "end_ns"))
        if phases is None:
            return ()
        sets = (phases.data, phases.forward, phases.backward, phases.optimizer, phases.device_wait, phases.between)
        lengths = {name: _total_length(intersect(times, phase)) for name, phase in zip(PHASES, sets, strict=False)}
        whole_ns = _total_length(times)
        lengths["python_ns"] = whole_ns - sum(lengths.values())
        return tuple(name for name, length in lengths.items() if whole_ns and length >= _LIES_IN * whole_ns)

    def starting_with(self, prefix: str) -> pl.DataFrame:
        """The calls whose names start with ``prefix``."""
        return self.called(of_names.with_prefix(self.names, prefix))

    def containing(self, pattern: str) -> pl.DataFrame:
        """The calls in whose names a regular expression is found."""
        return self.called(of_names.containing(self.names, pattern))

    def called(self, names: Sequence[str]) -> pl.DataFrame:
        """The calls that have one of these names."""
        if not names:
            return self._no_calls
        calls = self.named_calls
        is_called = calls["name"].is_in(list(names))
        if calls.height <= _FEW_CALLS:
            return self.calls.filter(is_called)
        rows = calls.filter(is_called)
        return rows.with_columns(rows["name"].cast(pl.String))

    @unlocked_cached_property
    def _no_calls(self) -> pl.DataFrame:
        return self.named_calls.clear().with_columns(pl.col("name").cast(pl.String))


def _total_length(intervals: Intervals) -> int:
    return int(intervals.end.sum() - intervals.start.sum())


def _typical_per_step(lengths: npt.NDArray[np.int64], steps: int) -> float:
    """``Facts.typical_ns`` of what single steps have of something, ns; 0 in those of ``steps`` that are not there."""
    some = lengths[lengths > 0]
    return float(np.median(some)) * len(some) / steps if len(some) else 0.0


def _mean_without_one(lengths: npt.NDArray[np.float64]) -> float:
    """Mean of sorted lengths, of three or more with the last one as long as the one before it."""
    return float(np.mean(np.r_[lengths[:-1], lengths[-2]] if len(lengths) > 2 else lengths))


def analyse_once(make: Callable[[Sequence[Trace]], Made], facts: Sequence[Facts], traces: Sequence[Trace]) -> Made:
    """``make(traces)``, worked out once: what several rules ask of several ranks.

    Args:
        make: an analysis.
        facts: of the ranks; the first one's keep the answer.
        traces: of the ranks, or of the run.
    """
    if not facts:
        return make(traces)
    answers, key = facts[0].answers, (make, tuple(traces))
    if key not in answers:
        answers[key] = make(traces)
    return cast(Made, answers[key])
