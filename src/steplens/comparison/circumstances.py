"""What besides the program differs between two sides, so that the difference of their steps may have another cause."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from steplens.analysis.device.clock_rates import clock_rates
from steplens.analysis.operators.common_calls import are_unlike, common_share
from steplens.analysis.operators.recording_cost import recording_cost
from steplens.analysis.steps.times import runs_behind
from steplens.common.display import duration
from steplens.comparison.recordings import Recording
from steplens.run import Run
from steplens.trace.building.checks.ranks import recorded_span
from steplens.trace.building.devices import device_names
from steplens.trace.health import STEP_TIMES
from steplens.trace.trace import Trace

#: what is recorded of the machine and its software: key of ``meta`` and its name
MACHINE_NAMES = {
    "torch_version": "PyTorch",
    "ms_version": "MindSpore",
    "host_name": "host",
    "hostname": "host",
    "processor": "processor",
}
#: options of a recording that slow a step down
_SLOWING = ("record_shapes", "with_stack", "profile_memory", "with_modules", "with_flops")
#: recordings of one program differ by less
_ALIKE = 1.15
#: a smaller share of its time that a process waited for a processor is no contention
_CONTENTION = 0.05
#: calls of the same operators with inputs of the same shapes are fewer of other inputs
_SAME_SHAPES = 0.9
#: what recording adds is said where it is a larger share of the change, and of the step
_RECORDING_SHARE, _LEAST_RECORDING = 0.1, 0.02
#: typical steps and means that change in opposite directions, by more than that both
_DISAGREE = 0.02
#: clock rates that differ by less are the same: they vary from one moment to the next
_SAME_CLOCK = 1.03
#: hexadecimal digits that tell recordings apart
_IDENTITY_DIGITS = 24


@dataclass(frozen=True)
class Circumstances:
    """How a side was recorded, of all its recordings, those that are too short to count included.

    Attributes:
        ranks: the ranks that were recorded, ascending; -1 of a trace that says none.
        begin_ns: when the first recording began, ns since the Unix epoch; 0 where nothing tells.
        identities: of each trace what it has in common with copies of it, and with nothing else.
        devices: what computes, such as "CUDA (NVIDIA A100)".
        machine: what is known of the machine and its software: key of ``meta`` -> its values among the traces.
        options: option of the recording -> "on", "off", or both.
        clock_mhz: processor ("processor", "CUDA", "AI core") -> its clock rate in each trace that says so, MHz.
        recorded_calls: operator calls of a step that were recorded one by one, mean over the traces; 0 where nothing tells.
        recording_ns: what recording these probably adds to a step (``recording_cost``); 0 where the device runs behind the host.
        steps_ns: the median step of each recording with steps.
        waited_share: the largest share of its time that a recording waited for a processor, 0 to 1.
        doubtful_steps: why the health check doubts step times, sentences.
        problems: check and message of all that the health check says.
    """

    ranks: tuple[int, ...]
    begin_ns: int
    identities: tuple[str, ...]
    devices: tuple[str, ...]
    machine: Mapping[str, tuple[str, ...]]
    options: Mapping[str, tuple[str, ...]]
    clock_mhz: Mapping[str, tuple[float, ...]]
    recorded_calls: float
    recording_ns: float
    steps_ns: tuple[float, ...]
    waited_share: float
    doubtful_steps: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]


def measure_circumstances(run: Run, recordings: Sequence[Recording]) -> Circumstances:
    """How a run was recorded.

    Args:
        run: what was opened.
        recordings: all of its recordings.
    """
    traces = run.traces
    costs = [cost for trace in traces if not runs_behind(trace) and (cost := recording_cost(trace)) is not None]
    medians = [recording.steps["step_time_ns"].median() for recording in recordings]
    return Circumstances(
        ranks=tuple(sorted({trace.rank for trace in traces})),
        begin_ns=min((begin for trace in traces if (begin := recorded_span(trace)[0])), default=0),
        identities=tuple(_recording_identity(trace, path) for trace, path in zip(traces, run.paths, strict=True)),
        devices=_device_names(traces),
        machine={key: values for key in MACHINE_NAMES if (values := _meta_values(traces, key))},
        options={option: values for option in _SLOWING if (values := _option_values(traces, option))},
        clock_mhz=_clock_rates(traces),
        recorded_calls=sum(cost.calls for cost in costs) / max(len(costs), 1),
        recording_ns=sum(cost.cost_ns for cost in costs) / max(len(costs), 1),
        steps_ns=tuple(float(median) for median in medians if isinstance(median, float)),
        waited_share=max((recording.waited_share or 0.0 for recording in recordings), default=0.0),
        doubtful_steps=tuple(run.unsafe(STEP_TIMES)["message"].to_list()),
        problems=tuple(run.health().select("check", "message").cast(pl.String).iter_rows()),
    )


def find_doubts(
    before: Circumstances, after: Circumstances, calls: pl.DataFrame, calls_by_shape: pl.DataFrame | None
) -> list[str]:
    """Sentences about what makes a comparison unsafe; none where nothing is known to.

    Args:
        before: of the earlier side.
        after: of the later one.
        calls: operator calls by name (``names.join_by_name``).
        calls_by_shape: the same by name and shapes of inputs, where both sides recorded them.
    """
    sides = (("earlier", before), ("later", after))
    sentences = [f"step times of the {name} side are doubtful: {text}" for name, side in sides for text in side.doubtful_steps]
    if are_unlike(calls):
        share = common_share(calls) or 0.0
        sentences.append(f"these are two programs: only {100 * share:.0f} % of the operator calls of a step are common")
    elif calls_by_shape is not None and (of_shapes := common_share(calls_by_shape)) is not None and of_shapes < _SAME_SHAPES:
        sentences.append(f"inputs have other shapes: {100 * (1 - of_shapes):.0f} % of the operator calls of a step")
    sentences += _describe_copies(before, after)
    for name, side in sides:
        sentences += _describe_mixture(side, name)
    if 0 < after.begin_ns < before.begin_ns:
        sentences.append("the earlier side was recorded after the later one")
    sentences += _describe_difference("devices", before.devices, after.devices)
    sentences += _describe_difference("ranks", _rank_names(before), _rank_names(after))
    for name, side in sides:
        sentences += _describe_contention(side, name)
    for key, name in MACHINE_NAMES.items():
        sentences += _describe_difference(name, before.machine.get(key, ()), after.machine.get(key, ()))
    sentences += _describe_recording(before, after)
    sentences += _describe_clocks(before.clock_mhz, after.clock_mhz)
    for option in _SLOWING:
        values = (before.options.get(option, ()), after.options.get(option, ()))
        sentences += _describe_difference(f"recording with {option}", *values)
    return sentences


def _describe_copies(before: Circumstances, after: Circumstances) -> Iterable[str]:
    """Recordings that are there twice, wherever their copies lie."""
    for name, side in (("earlier", before.identities), ("later", after.identities)):
        if copies := len(side) - len(set(side)):
            yield f"the {name} side holds {copies} recording{'s' * (copies > 1)} twice, which count twice"
    if common := set(before.identities) & set(after.identities):
        yield f"both sides hold the same {len(common)} recording{'s' * (len(common) > 1)}"


def _describe_mixture(side: Circumstances, name: str) -> Iterable[str]:
    """Recordings of a side that are of no one program on one kind of device."""
    if len(side.devices) > 1:
        yield f"the {name} side holds recordings on {', '.join(side.devices)}"
    steps_ns = side.steps_ns
    if steps_ns and max(steps_ns) > _ALIKE * min(steps_ns):
        shortest, longest = (f"{value / 1e6:.4g} ms" for value in (min(steps_ns), max(steps_ns)))
        yield f"recordings of the {name} side have steps of {shortest} to {longest}: are they of one program?"


def _describe_contention(side: Circumstances, name: str) -> Iterable[str]:
    if side.waited_share > _CONTENTION:
        yield (
            f"processes of the {name} side waited {100 * side.waited_share:.0f} % of their time for a processor: other programs, "
            f"or more threads than there are processors"
        )


def _describe_difference(name: str, before: Sequence[str], after: Sequence[str]) -> Iterable[str]:
    """A sentence where both sides are known and differ."""
    if before and after and before != after:
        yield f"{name} differ: {', '.join(before)} before, {', '.join(after)} after"


def _describe_recording(before: Circumstances, after: Circumstances) -> Iterable[str]:
    """A side that makes more calls is longer by what recording them takes, too."""
    if not (before.recording_ns and after.recording_ns and before.steps_ns and after.steps_ns):
        return
    steps_ns = [float(np.exp(np.mean(np.log(side.steps_ns)))) for side in (before, after)]
    change_ns, recording_ns = steps_ns[1] - steps_ns[0], after.recording_ns - before.recording_ns
    if abs(recording_ns) > _RECORDING_SHARE * abs(change_ns) and abs(recording_ns) > _LEAST_RECORDING * min(steps_ns):
        more, name = abs(after.recorded_calls - before.recorded_calls), "later" if recording_ns > 0 else "earlier"
        yield (
            f"recording operators one by one takes about {duration(abs(recording_ns))} more of a step of the {name} side, which "
            f"makes {more:,.0f} more calls: at full speed (steplens bench) they cost less"
        )


def describe_means(typical_ns: Sequence[float], mean_ns: Sequence[float]) -> Iterable[str]:
    """A typical step that became longer while the mean became shorter, or the other way round.

    Args:
        typical_ns: the usual step of the earlier and of the later side, which the verdict is of.
        mean_ns: the mean of their usual steps, which parts and causes are of.
    """
    typical, mean = (after / before - 1.0 if before > 0 else 0.0 for before, after in (typical_ns, mean_ns))
    if typical * mean < 0 and min(abs(typical), abs(mean)) > _DISAGREE:
        yield (
            f"the typical step changed by {100 * typical:+.1f} %, and the mean of the usual steps, which parts and causes are "
            f"of, by {100 * mean:+.1f} %: recordings were disturbed; record more of them on a machine that does nothing else"
        )


def _describe_clocks(before: Mapping[str, tuple[float, ...]], after: Mapping[str, tuple[float, ...]]) -> Iterable[str]:
    """Processors that were clocked otherwise: what computes is by so much faster or slower."""
    for name in (name for name in before if name in after):
        rates = [sum(mhz) / len(mhz) for mhz in (before[name], after[name])]
        if max(rates) > _SAME_CLOCK * min(rates):
            yield f"clock rates differ: {name} {rates[0]:,.0f} MHz before, {rates[1]:,.0f} MHz after"


def _clock_rates(traces: Sequence[Trace]) -> dict[str, tuple[float, ...]]:
    rates: dict[str, list[float]] = {}
    for trace in traces:
        for name, mhz in clock_rates(trace).items():
            rates.setdefault(name, []).append(mhz)
    return {name: tuple(of_traces) for name, of_traces in rates.items()}


def _rank_names(side: Circumstances) -> tuple[str, ...]:
    return tuple(sorted(str(rank) for rank in side.ranks if rank >= 0))


def _recording_identity(trace: Trace, path: Path) -> str:
    """What copies of a recording have in common, and nothing else: what it says itself, or where it lies."""
    trace_id = trace.meta_value("trace_id")
    text = f"{trace_id} {trace.rank}" if trace_id is not None else str(path.resolve())
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_IDENTITY_DIGITS]


def _device_names(traces: Sequence[Trace]) -> tuple[str, ...]:
    """What computes: which of several equal devices it was makes no difference."""
    return tuple(sorted({re.sub(r" \d+", "", name, count=1) for trace in traces for name in device_names(trace)}))


def _meta_values(traces: Sequence[Trace], key: str) -> tuple[str, ...]:
    return tuple(sorted({_meta_text(value) for trace in traces if (value := trace.meta_value(key)) is not None}))


def _meta_text(value: Any) -> str:
    return ", ".join(f"{name} {part}" for name, part in value.items()) if isinstance(value, dict) else str(value)


def _option_values(traces: Sequence[Trace], option: str) -> tuple[str, ...]:
    values = set()
    for trace in traces:
        config = trace.meta_value("config")
        for group in config.values() if isinstance(config, dict) else ():
            if isinstance(group, dict) and option in group:
                values.add("on" if group[option] else "off")
    return tuple(sorted(values))
