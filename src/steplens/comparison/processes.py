"""Which traces one process recorded, window after window, and which of several ranks were recorded at the same time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path

import polars as pl

from steplens.analysis.cluster.clocks.job_clocks import host_of
from steplens.analysis.steps.training_thread import training_thread
from steplens.trace.building.checks.ranks import recorded_span, step_bounds
from steplens.trace.schema import PROCESS_IDENTITY
from steplens.trace.trace import Trace

#: key of ``meta``: the number of the process that was recorded
_PROCESS_NUMBER = "pid"

#: traces of one rank that belong together: the windows of a process, or one of them
Part = Sequence[Trace]


def group_processes(traces: Sequence[tuple[Trace, Path]]) -> list[list[Trace]]:
    """The traces of a rank by the process that recorded them, both in order of time.

    Recordings of steplens say which process they are of. Elsewhere a process is known by its machine and number, and numbers come
    again, in containers with every run: what has the same is of one process only where it lies in one folder and each window goes
    on where the one before ended, in time and in its numbers of steps.

    Args:
        traces: of one rank, each with its run directory or file.
    """
    if len(traces) == 1:
        return [[trace] for trace, _ in traces]
    processes: list[list[Trace]] = []
    latest: dict[Hashable, list[Trace]] = {}
    for trace, path in sorted(traces, key=lambda placed: begin_ns(placed[0])):
        identity = trace.meta_value(PROCESS_IDENTITY)
        is_certain = isinstance(identity, str)
        key = identity if is_certain else (host_of(trace), _process_number(trace), path.parent)
        windows = latest.get(key)
        if windows is None or not (is_certain or _goes_on(windows[-1], trace)):
            windows = latest[key] = []
            processes.append(windows)
        windows.append(trace)
    return processes


def begin_ns(trace: Trace) -> int:
    """When a recording began, Unix ns; 0 where nothing tells."""
    return recorded_span(trace)[0] or 0


def _process_number(trace: Trace) -> int | None:
    """As the source says it, else that of the training thread: PyTorch's own profiler writes no other."""
    number = trace.meta_value(_PROCESS_NUMBER)
    if isinstance(number, int):
        return number
    thread = training_thread(trace)
    return None if thread is None else thread.pid


def _goes_on(window: Trace, following: Trace) -> bool:
    """Whether a window begins behind the end of another one, and so do its numbers of steps."""
    end_ns, start_ns = recorded_span(window)[1], recorded_span(following)[0]
    if end_ns is not None and start_ns is not None and start_ns < end_ns:
        return False
    numbers, next_numbers = (step_bounds(trace)["id"].drop_nulls() for trace in (window, following))
    return not numbers.len() or not next_numbers.len() or bool(next_numbers.to_numpy().min() > numbers.to_numpy().max())


def match_ranks(parts_of_ranks: Sequence[Sequence[Part]]) -> list[list[Trace]]:
    """The parts of several ranks that were recorded at the same time, joined, in order of time.

    A part that no other rank has stays alone. Where each rank has as many, and none of them were recorded at the same time, it is
    their clocks that differ, and their order counts.

    Args:
        parts_of_ranks: of each rank its parts, in order of time.
    """
    joined: list[list[Trace]] = []
    # of the rank that each began with: of thousands of ranks those of all would be asked again and again
    spans: list[tuple[int, int]] = []
    # the rank that misses least comes first
    for parts in sorted(parts_of_ranks, key=len, reverse=True):
        own_spans = [_span_of(part) for part in parts]
        for part, span, place in zip(parts, own_spans, _find_places(spans, own_spans), strict=True):
            if place is None:
                joined.append(list(part))
                spans.append(span)
            else:
                joined[place] += part
    return sorted((sorted(traces, key=begin_ns) for traces in joined), key=lambda traces: begin_ns(traces[0]))


def _find_places(joined: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> list[int | None]:
    """Which of the joined parts each part of another rank belongs to; None for one that belongs to none.

    Args:
        joined: begin and end of each of them.
        spans: those of the parts.
    """
    overlaps = [[min(end, other_end) - max(begin, other_begin) for other_begin, other_end in joined] for begin, end in spans]
    if len(spans) == len(joined) and len({overlaps[number][number] > 0 for number in range(len(spans))}) <= 1:
        return list(range(len(spans)))
    free = list(range(len(joined)))
    places: list[int | None] = []
    for of_part in overlaps:
        place = max(free, key=of_part.__getitem__, default=None)
        if place is not None and of_part[place] > 0:
            free.remove(place)
            places.append(place)
        else:
            places.append(None)
    return places


def _span_of(part: Part) -> tuple[int, int]:
    spans = [recorded_span(trace) for trace in part]
    begins, ends = [begin for begin, _ in spans if begin is not None], [end for _, end in spans if end is not None]
    return min(begins, default=0), max(ends, default=0)


def number_windows(traces: Sequence[Trace]) -> tuple[int, ...]:
    """Which window of its process each trace of a recording is, the same number on all ranks, from 0.

    Where the numbers of steps go on from window to window these tell steps apart, and all have the number 0.
    """
    of_ranks: dict[int, list[Trace]] = {}
    for trace in traces:
        of_ranks.setdefault(trace.rank, []).append(trace)
    if not any(map(_begins_anew, of_ranks.values())):
        return (0,) * len(traces)
    windows = match_ranks([[(trace,) for trace in of_ranks[rank]] for rank in sorted(of_ranks)])
    numbers = {trace: number for number, window in enumerate(windows) for trace in window}
    return tuple(numbers[trace] for trace in traces)


def _begins_anew(windows: Sequence[Trace]) -> bool:
    """Whether two windows of a rank have a step of the same number."""
    if len(windows) < 2:
        return False
    numbers = [step_bounds(trace)["id"].drop_nulls().unique() for trace in windows]
    return bool(pl.concat(numbers).is_duplicated().any())
