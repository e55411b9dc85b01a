"""What recording operators adds to them: a profiler takes part of a microsecond for each call that it records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from steplens.analysis.steps.choice import chosen_steps
from steplens.analysis.steps.summary import StepSummary, summarize_steps
from steplens.analysis.tools.names import containing, of_calls
from steplens.analysis.tools.once import once_per_trace
from steplens.trace.building.checks.common import format_duration
from steplens.trace.health import INFO, OPERATOR_TIMES, STEP_TIMES, HealthFinding, finding
from steplens.trace.schema import OPERATOR_RECORDER, OWN_RECORDER, SCOPE_BACKWARD, SCOPE_FUNCTION
from steplens.trace.trace import Trace

#: the name of the finding
RECORDING_COST = "recording_cost"
#: a smaller share of a step is not worth a word
_LEAST_SHARE = 0.05
#: operators that only describe a tensor anew: what they take is what any call takes, on this machine, as it was recorded
_VIEWS = r"^aten::as_strided$"
#: of fewer calls their length is a matter of chance
_LEAST_CALLS = 50
#: a call that takes longer has something else in it, such as a profiler of another kind
_MOST_NS = 2_000
#: older versions of PyTorch's profiler count whole microseconds
_COARSE_NS = 1000
#: cost of recording a call / recorded length of such a call: processor time of loops of 4,500 and 7,400 calls with
#: torch.profiler less that without, by their number, was 1.9 to 4.5 times that length (plain, shapes, stacks, both; torch 2.13)
_COSTS = (1.9, 2.5, 4.5)
#: the same with steplens' recorder: loops of 2,264 calls, 0.37 us (names) to 0.56 us (shapes and memory) each, were 1.9 to 2.1
#: times the length of such a call; torch 2.13
_OWN_COSTS = (1.6, 2.0, 2.6)
#: what a call that does next to nothing takes without what it calls (sizes, dispatch, a small result) / that length
_DISPATCH = 16.0
#: the same where no such call was recorded, ns
_USUAL_DISPATCH_NS = 3_000.0


@dataclass(frozen=True)
class RecordingCost:
    """What recording adds to a step.

    Attributes:
        calls: recorded operator calls of a step, all threads.
        cost_ns: of all of them, probably; ``least_ns``, ``most_ns``: at least and at most.
    """

    calls: float
    cost_ns: float
    least_ns: float
    most_ns: float


@dataclass(frozen=True)
class RecordingOfCall:
    """What recording adds, ns: at least, probably, at most."""

    least_ns: float
    likely_ns: float
    most_ns: float

    def of_calls(self, count: float) -> RecordingOfCall:
        """The same of so many calls."""
        return RecordingOfCall(count * self.least_ns, count * self.likely_ns, count * self.most_ns)


@once_per_trace
def view_ns(trace: Trace) -> float | None:
    """How long a call that does nothing was recorded to take, median, ns.

    None where too few were recorded, where the clock is not fine enough to tell, and where such a call does more than nothing.
    """
    views = containing(of_calls(trace), _VIEWS)
    if not views:
        return None
    calls = trace.required("ops").filter(pl.col("name").is_in(views)).select("self_ns").drop_nulls().collect()["self_ns"]
    is_fine = len(calls) >= _LEAST_CALLS and not (calls % _COARSE_NS == 0).all()
    median = calls.median() if is_fine else None
    return float(median) if isinstance(median, (int, float)) and 0 < median <= _MOST_NS else None


def cost_of_call(trace: Trace) -> RecordingOfCall | None:
    """What recording adds to a call; None where nothing tells."""
    length = view_ns(trace)
    return RecordingOfCall(*_costs_of_call(trace)).of_calls(length) if length is not None else None


def _costs_of_call(trace: Trace) -> tuple[float, float, float]:
    """What recording adds to a call, by the length of one that does nothing: at least, probably, at most."""
    return _OWN_COSTS if trace.meta_value(OPERATOR_RECORDER) == OWN_RECORDER else _COSTS


def dispatch_ns(trace: Trace) -> float:
    """Self time of a call that does next to nothing, ns: what a call takes beyond that is work."""
    length = view_ns(trace)
    return length * _DISPATCH if length is not None else _USUAL_DISPATCH_NS


@once_per_trace
def recording_cost(trace: Trace) -> RecordingCost | None:
    """What recording adds to one of the chosen steps; None where nothing tells."""
    length, steps = view_ns(trace), chosen_steps(trace).steps
    if length is None or not steps:
        return None
    is_operator = pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD])
    of_steps = trace.required("ops").filter(pl.col("step").is_in(list(steps)) & is_operator)
    calls = of_steps.select(pl.len()).collect().item() / len(steps)
    least, likely, most = _costs_of_call(trace)
    return RecordingCost(calls, *(calls * length * ratio for ratio in (likely, least, most)))


@once_per_trace
def find_recording_cost(trace: Trace) -> tuple[HealthFinding, ...]:
    """A finding where recording the operators is a considerable part of a step, as it is where there are many tiny ones."""
    cost = recording_cost(trace)
    step_ns = summarize_steps([trace]).host_ns if cost is not None else None
    if cost is None or not step_ns or cost.cost_ns < _LEAST_SHARE * step_ns:
        return ()
    message = (
        f"recording itself is about {format_duration(cost.cost_ns)} of a step here ({100 * cost.cost_ns / step_ns:.0f} % of its "
        f"{format_duration(step_ns)} on the host; between {format_duration(cost.least_ns)} and {format_duration(cost.most_ns)}): "
        f"{cost.calls:,.0f} operator calls of a step are recorded one by one, and what consists of tiny ones is shorter without"
    )
    return (finding(RECORDING_COST, INFO, 1, message, STEP_TIMES, OPERATOR_TIMES),)


def step_without_recording(traces: Sequence[Trace], summary: StepSummary) -> tuple[float, float] | None:
    """How long a step takes without the profiler: at least, at most, ns.

    The step time less what recording its operators adds, of the rank of which that is the least and the most. None where it is
    not a considerable part of every one's step (``find_recording_cost``), and where the device runs behind the host, which then
    has the time for it.

    Args:
        traces: of one run.
        summary: of these traces.
    """
    costs = [cost for trace in traces if find_recording_cost(trace) and (cost := recording_cost(trace)) is not None]
    if not costs or len(costs) < len(traces) or summary.behind or not summary.step_time_ns:
        return None
    most_ns, least_ns = max(cost.most_ns for cost in costs), min(cost.least_ns for cost in costs)
    return max(summary.step_time_ns - most_ns, 0.0), max(summary.step_time_ns - least_ns, 0.0)
