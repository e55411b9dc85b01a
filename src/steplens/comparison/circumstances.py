"""What besides the program differs between two sides, so that the difference of their steps may have another cause."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from steplens.analysis.operators.common_calls import are_unlike, common_share
from steplens.comparison.recordings import find_recordings
from steplens.run import Run
from steplens.trace.building.checks.ranks import recorded_span
from steplens.trace.building.devices import device_names
from steplens.trace.health import STEP_TIMES
from steplens.trace.trace import Trace

#: what is recorded of the machine and its software: key of ``meta`` and its name
_COMPARED = {
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


def find_doubts(before: Run, after: Run, calls: pl.DataFrame, calls_by_shape: pl.DataFrame | None) -> list[str]:
    """Sentences about what makes a comparison unsafe; none where nothing is known to.

    Args:
        before: the earlier side.
        after: the later one.
        calls: operator calls by name (``names.compare_by_name``).
        calls_by_shape: the same by name and shapes of inputs, where both sides recorded them.
    """
    sentences = [*_describe_health(before, "the earlier side"), *_describe_health(after, "the later side")]
    share = common_share(calls)
    if are_unlike(share):
        sentences.append(f"these are two programs: only {100 * (share or 0.0):.0f} % of the operator calls of a step are common")
    elif calls_by_shape is not None and (of_shapes := common_share(calls_by_shape)) is not None and of_shapes < _SAME_SHAPES:
        sentences.append(f"inputs have other shapes: {100 * (1 - of_shapes):.0f} % of the operator calls of a step")
    first, second = before.traces, after.traces
    sentences += _describe_copies(before, after)
    sentences += [*_describe_mixture(first, "earlier"), *_describe_mixture(second, "later")]
    begins = [min((begin for trace in side if (begin := recorded_span(trace)[0])), default=0) for side in (first, second)]
    if 0 < begins[1] < begins[0]:
        sentences.append("the earlier side was recorded after the later one")
    sentences += _describe_difference("devices", _device_names(first), _device_names(second))
    sentences += _describe_difference("ranks", _rank_names(first), _rank_names(second))
    sentences += [*_describe_contention(first, "earlier"), *_describe_contention(second, "later")]
    for key, name in _COMPARED.items():
        sentences += _describe_difference(name, _meta_values(first, key), _meta_values(second, key))
    for option in _SLOWING:
        sentences += _describe_difference(
            f"recording with {option}", _option_values(first, option), _option_values(second, option)
        )
    return sentences


def _describe_copies(before: Run, after: Run) -> Iterable[str]:
    """Recordings that are there twice, wherever their copies lie."""
    sides = [
        [_recording_identity(trace, path) for trace, path in zip(run.traces, run.paths, strict=True)] for run in (before, after)
    ]
    for name, side in zip(("earlier", "later"), sides, strict=True):
        if copies := len(side) - len(set(side)):
            yield f"the {name} side holds {copies} recording{'s' * (copies > 1)} twice, which count twice"
    if common := set(sides[0]) & set(sides[1]):
        yield f"both sides hold the same {len(common)} recording{'s' * (len(common) > 1)}"


def _recording_identity(trace: Trace, path: Path) -> tuple[object, ...]:
    """What copies of a recording have in common, and nothing else."""
    trace_id = trace.meta_value("trace_id")
    return (trace_id, trace.rank) if trace_id is not None else (path.resolve(),)


def _describe_mixture(traces: Sequence[Trace], side: str) -> Iterable[str]:
    """Recordings of a side that are of no one program on one kind of device."""
    kinds = sorted(_device_names(traces))
    if len(kinds) > 1:
        yield f"the {side} side holds recordings on {', '.join(kinds)}"
    steps_ns = [
        float(median)
        for recording in find_recordings(traces)
        if isinstance(median := recording.steps["step_time_ns"].median(), float)
    ]
    if steps_ns and max(steps_ns) > _ALIKE * min(steps_ns):
        shortest, longest = (f"{value / 1e6:.4g} ms" for value in (min(steps_ns), max(steps_ns)))
        yield f"recordings of the {side} side have steps of {shortest} to {longest}: are they of one program?"


def _describe_contention(traces: Sequence[Trace], side: str) -> Iterable[str]:
    waited = max((recording.waited_share or 0.0 for recording in find_recordings(traces)), default=0.0)
    if waited > _CONTENTION:
        yield (
            f"processes of the {side} side waited {100 * waited:.0f} % of their time for a processor: other programs, or more "
            f"threads than there are processors"
        )


def _describe_health(run: Run, side: str) -> Iterable[str]:
    for row in run.unsafe(STEP_TIMES).iter_rows(named=True):
        yield f"step times of {side} are doubtful: {row['message']}"


def _device_names(traces: Sequence[Trace]) -> set[str]:
    """What computes, such as "CUDA (NVIDIA A100)": which of several equal devices it was makes no difference."""
    return {re.sub(r" \d+", "", name, count=1) for trace in traces for name in device_names(trace)}


def _rank_names(traces: Sequence[Trace]) -> set[str]:
    return {str(trace.rank) for trace in traces if trace.rank >= 0}


def _meta_values(traces: Sequence[Trace], key: str) -> set[str]:
    return {_meta_text(value) for trace in traces if (value := trace.meta_value(key)) is not None}


def _meta_text(value: Any) -> str:
    return ", ".join(f"{name} {part}" for name, part in value.items()) if isinstance(value, dict) else str(value)


def _option_values(traces: Sequence[Trace], option: str) -> set[str]:
    values = set()
    for trace in traces:
        config = trace.meta_value("config")
        for group in config.values() if isinstance(config, dict) else ():
            if isinstance(group, dict) and option in group:
                values.add("on" if group[option] else "off")
    return values


def _describe_difference(name: str, before: set[str], after: set[str]) -> Iterable[str]:
    """A sentence where both sides are known and differ."""
    if before and after and before != after:
        yield f"{name} differ: {', '.join(sorted(before))} before, {', '.join(sorted(after))} after"
