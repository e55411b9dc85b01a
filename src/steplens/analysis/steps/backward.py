"""When the training thread is in backward: from its call until it returns."""

from __future__ import annotations

import numpy as np

from steplens.analysis.steps.device_work import COMMUNICATION, device_work
from steplens.analysis.steps.host_calls import HostCalls, bridge_gaps
from steplens.analysis.tools.overlap import Int64Array, Intervals, length_inside, merge_intervals, subtract, union
from steplens.trace.trace import Trace

_NEVER = np.iinfo(np.int64).max


def backward_passes(trace: Trace, calls: HostCalls) -> Intervals:
    """The backward passes of a trace, in order of time.

    A pass holds the nodes of autograd on all threads of the process, DistributedDataParallel's copies of reduced gradients, and
    the ranges and frames that say backward, together with the gaps between them in which the training thread does nothing else.
    It begins with the operator that makes its first gradient. Where collectives run on the host, it ends with the one that was in
    flight at its last node and that the thread waited for.
    """
    # what the thread does outside of backward ends a pass
    elsewhere = union(subtract(calls.operators, calls.roots), union(calls.data, calls.model))
    elsewhere = subtract(elsewhere, union(calls.backward, calls.reduced))
    passes = bridge_gaps(calls.backward, elsewhere, calls.step_starts)
    if not len(passes.start):
        return passes
    passes = _with_reduced(passes, calls)
    start = _from_root(passes.start, calls.roots, elsewhere)
    end = passes.end
    if not trace.has_accelerator:
        end = _until_collective(passes, device_work(trace).intervals(COMMUNICATION), elsewhere, calls)
    return merge_intervals(start, end)


def _with_reduced(passes: Intervals, calls: HostCalls) -> Intervals:
    """Passes that end when the last reduced gradient was taken over; what is called on the way there belongs to them."""
    if not len(calls.reduced.start):
        return passes
    away = subtract(union(union(calls.data, calls.model), calls.optimizer), union(passes, calls.reduced))
    bridged = bridge_gaps(union(passes, calls.reduced), away, calls.step_starts)
    # a stretch without a node of autograd is none
    holds_pass = length_inside(passes, bridged.start, bridged.end) > 0
    begins = np.searchsorted(bridged.start, passes.start, side="right") - 1
    # two passes in one stretch stay two: the end of the first of them is its own
    last = np.r_[begins[1:] != begins[:-1], True]
    reaches = np.where(last & holds_pass[begins], _last_reduced(calls.reduced, bridged.end[begins]), passes.end)
    return Intervals(passes.start, np.maximum(passes.end, reaches))


def _last_reduced(reduced: Intervals, before: Int64Array) -> Int64Array:
    """End of the last interval of ``reduced`` that ends at or before each time; 0 where there is none."""
    place = np.searchsorted(reduced.end, before, side="right") - 1
    return np.where(place >= 0, reduced.end[np.maximum(place, 0)], 0)


def _from_root(start: Int64Array, roots: Intervals, elsewhere: Intervals) -> Int64Array:
    """Beginnings of passes, earlier where the operator that makes the first gradient lies directly in front."""
    if not len(roots.start):
        return start
    place = np.searchsorted(roots.end, start, side="right") - 1
    root = roots.start[np.maximum(place, 0)]
    before = np.searchsorted(elsewhere.end, start, side="right") - 1
    last = elsewhere.end[np.maximum(before, 0)] if len(elsewhere.end) else np.zeros_like(start)
    is_direct = (place >= 0) & ((before < 0) | (last <= root))
    return np.where(is_direct, root, start)


def _until_collective(passes: Intervals, collectives: Intervals, elsewhere: Intervals, calls: HostCalls) -> Int64Array:
    """Ends of passes, later where the thread calls nothing until a collective is over: it waits for it."""
    if not len(collectives.start):
        return passes.end
    following = np.full(len(passes.end), _NEVER)
    for starts in (elsewhere.start, passes.start, calls.optimizer.start, calls.step_starts):
        following = np.minimum(following, np.r_[starts, _NEVER][np.searchsorted(starts, passes.end, side="left")])
    # a thread of its own begins them: the last one may begin a moment behind the last node
    place = np.searchsorted(collectives.start, following, side="left") - 1
    until = np.where(place >= 0, collectives.end[np.maximum(place, 0)], passes.end)
    ends: Int64Array = np.maximum(passes.end, np.minimum(until, following))
    return ends
