"""How long a step waits for its data: from its start to its first forward operator, or in the iterator of the data pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.analysis.step_trace.step_trace import step_trace
from steplens.analysis.steps.choice import chosen_steps
from steplens.analysis.steps.phases import DATA, phase_of_calls
from steplens.analysis.steps.summary import usual_step_times
from steplens.analysis.steps.times import chosen_step_times
from steplens.analysis.tools.names import of_calls, with_prefix
from steplens.analysis.tools.once import once_per_trace
from steplens.trace.schema import DATALOADER_PREFIX, SCOPE_FUNCTION
from steplens.trace.trace import Trace

#: what PyTorch calls the iterators of its DataLoader
PYTORCH_LOADER = f"{DATALOADER_PREFIX}_"
#: of them that without workers, and that with some
_IN_LOOP, _OF_WORKERS = f"{PYTORCH_LOADER}SingleProcess", f"{PYTORCH_LOADER}MultiProcess"
#: a step waits for its batch from this share of its time on; else the batch was ready
_WAITS = 0.05
#: of fewer steps in a row that wait nobody knows whether the next one does
_IN_A_ROW = 3


@dataclass(frozen=True)
class DataWait:
    """How long steps waited for data.

    Attributes:
        steps: step, wait_ns and total_ns of the steps that count.
        by_device: whether the device's points tell (what lies before its first forward operator), or the loop's own clock.
    """

    steps: pl.DataFrame
    by_device: bool

    @property
    def wait_ns(self) -> float:
        """Wait of a step: the median over these steps; of points of the device the mean, which MindSpore's tools take."""
        return self._typical_time("wait_ns")

    @property
    def step_ns(self) -> float:
        """Length of a step, in the same way."""
        return self._typical_time("total_ns")

    def _typical_time(self, column: str) -> float:
        values = self.steps[column]
        return float((values.mean() if self.by_device else values.median()) or 0)  # type: ignore[arg-type]

    @property
    def share(self) -> float:
        """The wait as a share of the step, at most 1."""
        return min(self.wait_ns / self.step_ns, 1.0) if self.step_ns > 0 else 0.0


def data_wait(trace: Trace) -> DataWait | None:
    """How long the steps of one rank waited for data; None where nothing tells.

    1. Where the device recorded points, the interval of ``step_trace``, without warm-up. A first step begins with its first
       forward operator, because nothing tells when it was ready for it: alone it says nothing.
    2. Else what the thread of the steps spent in the iterator of a data pipeline (``data_wait_ns`` of ``step_times``), in the
       chosen steps.
    """
    if trace.step_points is not None:
        points = trace.once(step_trace)
        chosen_points = points.filter(pl.col("step").is_in(chosen_steps(trace).steps))
        later = chosen_points if chosen_points.height else points
        # what began with its first forward operator
        counted = later.drop_nulls("interval_ns").filter((pl.col("step") != points["step"][0]) | (pl.col("interval_ns") > 0))
        if not counted.height:
            return None
        return DataWait(counted.select("step", "total_ns", wait_ns="interval_ns"), True)
    times = chosen_step_times(trace).drop_nulls("data_wait_ns") if trace.once(_has_loader_calls) else None
    if times is None or not times.height:
        return None
    return DataWait(times.select("step", total_ns="duration_ns", wait_ns="data_wait_ns"), False)


def _has_loader_calls(trace: Trace) -> bool:
    """Whether the iterator of a data pipeline was recorded."""
    return bool(with_prefix(of_calls(trace), DATALOADER_PREFIX))


@dataclass(frozen=True)
class WaitingSteps:
    """Usual steps of which some wait for their batch and the others find it ready: a mean over all is of neither.

    Attributes:
        steps: the numbers of those that wait; ``of`` is how many there are in all.
        wait_ns: what these wait on average; ``ready_ns``: the others.
        since: the step from which on every one waits and none before; None where they alternate, or too few wait.
    """

    steps: tuple[int, ...]
    of: int
    wait_ns: float
    ready_ns: float
    since: int | None


@once_per_trace
def waiting_steps(trace: Trace) -> WaitingSteps | None:
    """Which of the usual steps wait for data, by the loop's own clock.

    None where all do or none does, and where nobody makes batches ahead. A queue that was filled before the first step feeds some
    steps, however slow the loader is.
    """
    return None if loads_in_loop(trace) else tell_waiting_apart(usual_step_times(trace))


def tell_waiting_apart(steps: pl.DataFrame) -> WaitingSteps | None:
    """The same of some steps (step, duration_ns, data_wait_ns)."""
    times = steps.drop_nulls(["data_wait_ns", "duration_ns"]).sort("step")
    is_waiting = times["data_wait_ns"] >= _WAITS * times["duration_ns"]
    # fed by a full queue a step is short, and what it takes to fetch from that is much of it: that is no wait like the others'
    waits_ns = times.filter(is_waiting)["data_wait_ns"].to_numpy()
    if len(waits_ns):
        is_waiting &= times["data_wait_ns"] >= _WAITS * float(np.median(waits_ns))
    waiting, ready = times.filter(is_waiting), times.filter(~is_waiting)
    if not waiting.height or not ready.height:
        return None
    numbers = tuple(waiting["step"].to_list())
    is_since = len(numbers) >= _IN_A_ROW and numbers[0] > max(ready["step"].to_list())
    since = numbers[0] if is_since else None
    wait_ns, ready_ns = (float(part["data_wait_ns"].sum()) / part.height for part in (waiting, ready))
    return WaitingSteps(numbers, times.height, wait_ns, ready_ns, since)


def loads_with_pytorch(trace: Trace) -> bool:
    """Whether PyTorch's DataLoader fed the steps, whose rules speak its language."""
    return "pipeline_loaders" in trace or bool(with_prefix(of_calls(trace), PYTORCH_LOADER))


def loads_in_loop(trace: Trace) -> bool:
    """Whether the training loop loads its data itself, and waits for nobody: no DataLoader that was called has workers."""
    names = of_calls(trace)
    return bool(with_prefix(names, _IN_LOOP)) and not with_prefix(names, _OF_WORKERS)


def operators_of_loading(trace: Trace) -> pl.DataFrame:
    """Self time of the operators that the thread of each step calls while it loads data: step, self_ns."""
    threads = trace.required("steps").select("pid", "tid").unique()
    calls = trace.required("ops").select("step", "scope", "self_ns", "pid", "tid").with_columns(phase_of_calls(trace))
    loading = calls.filter((pl.col("phase") == DATA) & (pl.col("scope") == SCOPE_FUNCTION))
    loading = loading.join(threads, on=["pid", "tid"], how="semi").drop_nulls(["step", "self_ns"])
    return loading.group_by("step").agg(pl.col("self_ns").sum()).sort("step").collect()
