"""What a loop that loads its data itself would gain from workers, with the processors that workers and training share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Saving
from steplens.advice.recording import recording_of_part
from steplens.advice.rules.tools.tasks import top_values
from steplens.analysis.data_loading.data_wait import operators_of_loading
from steplens.analysis.data_loading.loaders import LoaderVerdict
from steplens.trace.schema import CORE_CPU

#: what taking over a batch that a worker has ready leaves in the loop
TAKING_OVER_NS = 200_000
#: what each processor but the first does for the operators of a training on a CPU, measured on convolutions
_FURTHER_PROCESSORS = 0.7
#: group and name of the samples of how busy the process was, in percent of one processor
_PROCESSOR_SAMPLES = "CPU Usage"
#: more workers than this are rarely possible, and rarely help
MOST_WORKERS = 16


@dataclass(frozen=True)
class LoadingInLoop:
    """A step of a loop that loads its data itself.

    Attributes:
        step_ns: how long it takes.
        loading_ns: of it, loading.
        processors: that the process may use; None where the run does not say.
        used_ns: processor time of a step, all threads together: at least, probably, at most; equal where it was recorded.
        recording_ns: of loading, what recording its calls adds: at least, probably, at most. Training without the profiler does
            not have it, so that all that follows is of the step without.
    """

    step_ns: float
    loading_ns: float
    processors: int | None
    used_ns: tuple[float, float, float]
    recording_ns: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def is_recorded(self) -> bool:
        """Whether the processor time was recorded."""
        return self.used_ns[0] == self.used_ns[2]

    @property
    def rest_ns(self) -> float:
        """The step without loading."""
        return max(self.step_ns - self.loading_ns, 0.0)

    @property
    def loading_beside_ns(self) -> tuple[float, float]:
        """What workers have to load for a step, and what the step takes meanwhile: the rest of it, or the shared processors."""
        shared_ns = self._shared_ns(self.used_ns[1], self.recording_ns[1])
        return self._pure_loading_ns(self.recording_ns[1]), max(self.rest_ns, shared_ns, 1.0)

    @property
    def worker_count(self) -> int:
        """The least number that hides all loading, and one to spare where there are processors for it."""
        loading_ns, beside_ns = self.loading_beside_ns
        enough = math.ceil(loading_ns / beside_ns)
        return min(max(enough, 1) + (0 if self.is_short_of_processors else 1), MOST_WORKERS)

    @property
    def processor_time_ns(self) -> tuple[float, float]:
        """What loading and training probably need of the processors in a step, and what these have meanwhile."""
        processors = self.processors or 1
        return self._shared_ns(self.used_ns[1], self.recording_ns[1]) * processors, self.loading_beside_ns[1] * processors

    @property
    def outnumbers_processors(self) -> bool:
        """Whether ``worker_count`` workers are more than the processors, which have time for them only as far as workers wait."""
        return self.processors is not None and self.worker_count > self.processors

    @property
    def is_short_of_processors(self) -> bool:
        """Whether workers cannot hide the loading because they and the training would share too few processors."""
        return self._shared_ns(self.used_ns[1], self.recording_ns[1]) > self.rest_ns

    def worker_saving(self) -> Saving:
        """What ``worker_count`` workers save.

        A step takes as long as the rest of it, their loading, or the shared processors, whichever most. The high end is with the
        least processor time, and does without taking over batches where there are processors to spare. The low end is half of
        what is left with the most.
        """
        (least, likely, most), (few, usual, many) = self.used_ns, self.recording_ns
        high = self._saved_ns(least, few, TAKING_OVER_NS if self.is_short_of_processors else 0.0)
        likely_ns = min(self._saved_ns(likely, usual, TAKING_OVER_NS), high)
        return Saving(min(self._saved_ns(most, many, TAKING_OVER_NS) / 2, likely_ns), likely_ns, high)

    def _pure_loading_ns(self, recording_ns: float) -> float:
        """Loading without what recording it takes."""
        return max(self.loading_ns - recording_ns, 0.0)

    def _shared_ns(self, used_ns: float, recording_ns: float) -> float:
        """What the shared processors take for a step at least."""
        # without loading the rest still takes a processor
        return max(used_ns - recording_ns, min(used_ns, self.rest_ns)) / self.processors if self.processors else 0.0

    def _saved_ns(self, used_ns: float, recording_ns: float, taking_over_ns: float) -> float:
        loading_ns = self._pure_loading_ns(recording_ns)
        shared_ns = self._shared_ns(used_ns, recording_ns)
        beside_ns = max(self.rest_ns + taking_over_ns, loading_ns / self.worker_count, shared_ns)
        return min(max(self.rest_ns + loading_ns - beside_ns, 0.0), loading_ns)


def collate_function(facts: Facts, loader: int) -> tuple[str, bool]:
    """The function that collates the batches of a loader, and whether its line was recorded.

    As ``file(line): name`` where Python calls were, else the name that the loader has it by; empty where nothing tells.
    """
    loaders = facts.trace.required("pipeline_loaders").filter(pl.col("loader") == loader)
    name = next(iter(loaders.select(pl.col("collate").cast(pl.String)).collect()["collate"].drop_nulls()), "")
    tasks = facts.trace.required("pipeline_tasks").filter((pl.col("loader") == loader) & pl.col("worker").is_null())
    times = tasks.select("collate_ns", "end_ns", "pid").drop_nulls().sort("collate_ns").collect()
    if not name or times.is_empty() or "python" not in facts.trace:
        return name, False
    frames = facts.trace.required("python")
    names = frames.select(pl.col("name").unique()).collect()["name"].drop_nulls()
    same = names.filter(names.cast(pl.String).str.ends_with(f": {name.rpartition('.')[2]}"))
    of_name = frames.filter(pl.col("name").is_in(same.implode()) & pl.col("pid").is_in(times["pid"].unique().implode()))
    length = pl.col("end_ns") - pl.col("start_ns")
    calls = of_name.select("start_ns", line="name", duration_ns=length).drop_nulls().collect()
    before = np.searchsorted(times["collate_ns"].to_numpy(), calls["start_ns"].to_numpy(), side="right") - 1
    is_inside = (before >= 0) & (calls["start_ns"].to_numpy() < times["end_ns"].to_numpy()[np.maximum(before, 0)])
    lines = top_values(calls.filter(pl.Series(is_inside)), "line", count=1)
    return (lines[0], True) if lines else (name, False)


def loading_in_loop(facts: Facts, loading_ns: float, processors: int | None) -> LoadingInLoop:
    """A step of a trace whose loop loads its data itself.

    The processor time of a step is that of the process from one batch to the next, where it was recorded; on a CPU that others
    use as well at least the time of its operators. Elsewhere loading
    takes at least its operators, and at most one processor all the time; training one processor, and on a CPU, whose operators
    have a thread per processor, all of them at most.
    """
    recorded_ns = _recorded_processor_ns(facts)
    rest_ns = max(facts.step_ns - loading_ns, 0.0)
    _, usual_processors, most_processors = _processors_of_training(facts, processors)
    if recorded_ns is not None:
        # operators work: as long as they take longer than their processor time, other processes had the processor
        wanted_ns = max(recorded_ns, facts.median("computing_ns") if facts.device == CORE_CPU else 0.0)
        used_ns = (recorded_ns, wanted_ns, wanted_ns)
    else:
        certain_ns = min(facts.typical_ns(operators_of_loading(facts.trace), "self_ns"), loading_ns)
        used_ns = (
            certain_ns + rest_ns,
            certain_ns + rest_ns * usual_processors,
            loading_ns + rest_ns * most_processors,
        )
    recording = recording_of_part(facts, "data_wait_ns")
    recording_ns = (recording.least_ns, recording.likely_ns, recording.most_ns)
    return LoadingInLoop(facts.step_ns, loading_ns, processors, used_ns, recording_ns)


def more_workers_saving(facts: Facts, loader: LoaderVerdict, batches: float, waiting_ns: float, processors: int) -> Saving:
    """What more workers alone save of a step that waits for them, on the processors that they share with the training.

    A step takes as long as the rest of it, or its processor time over the processors, whichever is more. The processor time is
    that of making its batches, as it was recorded of the workers (else their time, and at least nothing of it), and that of the
    training, as samples of its process tell it, else one processor for the rest of the step, on a CPU up to all of them.

    Args:
        facts: of the trace.
        loader: with workers.
        batches: of the loader per step.
        waiting_ns: what a step waits.
        processors: that the process may use.

    Returns:
        Low: half of what is left with the most processor time. High: with the least.
    """
    rest_ns = max(facts.step_ns - waiting_ns, 0.0)
    made_ns = _made_processor_ns(facts, loader)
    making = (0.0, loader.made_ns, loader.made_ns) if made_ns is None else (made_ns,) * 3
    sampled_ns = _sampled_processor_ns(facts)
    of_training = (rest_ns * used for used in _processors_of_training(facts, processors))
    training = tuple(of_training) if sampled_ns is None else (sampled_ns,) * 3
    high, likely, low = (
        min(max(facts.step_ns - max(rest_ns, (of_batch * batches + of_rest) / processors), 0.0), waiting_ns)
        for of_batch, of_rest in zip(making, training, strict=True)
    )
    return Saving(low / 2, likely, high)


def _processors_of_training(facts: Facts, processors: int | None) -> tuple[float, float, float]:
    """Processors that a training uses beside its loading, where nothing tells: at least, probably, at most."""
    further = (processors or 1) - 1 if facts.device == CORE_CPU else 0
    return 1.0, 1 + _FURTHER_PROCESSORS * further, 1.0 + further


def _made_processor_ns(facts: Facts, loader: LoaderVerdict) -> float | None:
    """Processor time of a worker per batch, mean; None where it was not recorded."""
    tasks = facts.trace.required("pipeline_tasks").filter(pl.col("loader") == loader.loader, pl.col("worker").is_not_null())
    mean = tasks.select(pl.col("cpu_ns").mean()).collect().item()
    return float(mean) if isinstance(mean, (int, float)) else None


def _sampled_processor_ns(facts: Facts) -> float | None:
    """Processor time of the training process in a step, as its samples have it; None where there are none."""
    counters = facts.trace.lazy("counters")
    if counters is None or not facts.steps.height:
        return None
    begin, end = (
        facts.steps.select(at).item() for at in (pl.col("start_ns").min(), (pl.col("start_ns") + pl.col("duration_ns")).max())
    )
    is_sample = (pl.col("group").cast(pl.String) == _PROCESSOR_SAMPLES) & (pl.col("name").cast(pl.String) == _PROCESSOR_SAMPLES)
    mean = counters.filter(is_sample & pl.col("time_ns").is_between(begin, end)).select(pl.col("value").mean()).collect().item()
    return float(mean) / 100 * facts.step_ns if isinstance(mean, (int, float)) else None


def _recorded_processor_ns(facts: Facts) -> float | None:
    """Processor time of the process from one batch to the next of its loop, median over the steps."""
    tasks = facts.trace.lazy("pipeline_tasks")
    if tasks is None:
        return None
    used = tasks.filter(pl.col("worker").is_null() & pl.col("step").is_in(list(facts.numbers))).select("step", "cpu_ns")
    # of several batches in a step the sum
    median = used.drop_nulls().group_by("step").agg(pl.col("cpu_ns").sum()).select("cpu_ns").median().collect().item()
    return float(median) if isinstance(median, (int, float)) else None
