"""One step of two versions beside each other: which part of one is which part of the other.

Calls are matched from the outermost ones inwards: those that are made in the same order under the same names (a longest common
subsequence) are the same, and long ones of these are looked into in the same way. So both sides are cut at the same depth.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from steplens.comparison.alignment.sequences import match_in_order
from steplens.comparison.alignment.step_calls import StepCalls

PHASE, CALL, DEVICE = "phase", "call", "device"
#: pairs of parts that are told at most, the longest ones
MOST_PAIRS = 300
#: a call is looked into where it takes a larger share of the step ...
_LEAST_SHARE = 0.02
#: ... where calls that both sides make in it take that share of it ...
_COMMON = 0.5
#: ... and where there are several of them, unless it takes that share of the step: what an operator does says less than its name
_WRAPPER = 0.2
#: names of callers that are told of a call, the nearest ones
_CALLERS = 3
_ROOT = -1
_KINDS = (PHASE, CALL, DEVICE)

Rows = tuple[int | None, int | None]


@dataclass(frozen=True)
class StepPart:
    """A part of a step.

    Attributes:
        kind: PHASE of the host, CALL, or DEVICE: the device tasks that a call launched, from the begin of the first to the end of
            the last.
        thread: of a call: 0 for the one with the most calls.
        name: of the phase or operator.
        start, end: ns from the begin of the step.
        callers: names of the calls around it, the outermost first; empty where there are none, and of phases.
        match: place of the same part among those of the other side; -1 where it has none.
    """

    kind: str
    thread: int
    name: str
    start: int
    end: int
    callers: tuple[str, ...] = ()
    match: int = -1


Pair = tuple[StepPart | None, StepPart | None]


def align_steps(before: StepCalls, after: StepCalls) -> tuple[list[StepPart], list[StepPart]]:
    """The parts of a step of two versions, those of each side in order of kind, thread and time.

    Args:
        before: a step of the earlier version.
        after: one of the later version.
    """
    phases = [[StepPart(PHASE, 0, *stretch) for stretch in side.phases] for side in (before, after)]
    matched = match_in_order(*([part.name for part in side] for side in phases))
    pairs: list[Pair] = [(phases[0][first], phases[1][second]) for first, second in matched]
    has_match = [{pair[side] for pair in matched} for side in (0, 1)]
    pairs += [(part, None) for place, part in enumerate(phases[0]) if place not in has_match[0]]
    pairs += [(None, part) for place, part in enumerate(phases[1]) if place not in has_match[1]]
    for first, second in _cut_calls(before, after):
        pairs.append((_describe_call(before, first), _describe_call(after, second)))
        pairs.append((_describe_device(before, first), _describe_device(after, second)))
    longest = sorted((pair for pair in pairs if pair != (None, None)), key=_length_ns, reverse=True)
    return _number_parts(longest[:MOST_PAIRS])


def _describe_call(calls: StepCalls, row: int | None) -> StepPart | None:
    if row is None:
        return None
    return StepPart(
        CALL, int(calls.thread[row]), calls.names[row], int(calls.start[row]), int(calls.end[row]), _find_callers(calls, row)
    )


def _describe_device(calls: StepCalls, row: int | None) -> StepPart | None:
    if row is None or calls.device_start[row] < 0:
        return None
    begin, end = int(calls.device_start[row]), int(calls.device_end[row])
    return StepPart(DEVICE, 0, calls.names[row], begin, end, _find_callers(calls, row))


def _find_callers(calls: StepCalls, row: int) -> tuple[str, ...]:
    names: list[str] = []
    while (row := int(calls.parent[row])) >= 0 and len(names) < _CALLERS:
        names.append(calls.names[row])
    return tuple(reversed(names))


def _length_ns(pair: Pair) -> int:
    return max(part.end - part.start for part in pair if part is not None)


def _number_parts(pairs: Sequence[Pair]) -> tuple[list[StepPart], list[StepPart]]:
    """The parts of each side in order, each with the place of its match."""
    orders = []
    for side in (0, 1):
        numbered = [(pair[side], number) for number, pair in enumerate(pairs)]
        parts = [(part, number) for part, number in numbered if part is not None]
        parts.sort(key=lambda row: (_KINDS.index(row[0].kind), row[0].thread, row[0].start, row[0].end))
        orders.append(parts)
    places = [{number: place for place, (_, number) in enumerate(parts)} for parts in orders]
    first, second = ([replace(part, match=places[1 - side].get(number, -1)) for part, number in orders[side]] for side in (0, 1))
    return first, second


def _cut_calls(before: StepCalls, after: StepCalls) -> list[Rows]:
    """Rows of both sides that are the same call, and those of one side alone."""
    sides = (before, after)
    children = [side.calls_by_caller() for side in sides]
    step_ns = max((int(side.end.max()) for side in sides if side.end.size), default=0)
    matched, cut = _match_calls(sides, [rows.get(_ROOT, []) for rows in children])
    lengths = [(-max(_call_ns(side, row) for side, row in zip(sides, pair, strict=True)), pair) for pair in matched]
    heapq.heapify(lengths)
    while lengths:
        length, pair = heapq.heappop(lengths)
        # each pair becomes several
        if -length > _LEAST_SHARE * step_ns and len(cut) + len(lengths) < MOST_PAIRS:
            calls = [rows.get(row, []) for rows, row in zip(children, pair, strict=True)]
            called, alone = _match_calls(sides, calls)
            shares = [
                sum(_call_ns(side, rows[number]) for rows in called) / max(_call_ns(side, pair[number]), 1)
                for number, side in enumerate(sides)
            ]
            if (len(called) > 1 or -length > _WRAPPER * step_ns) and called and min(shares) >= _COMMON:
                cut += alone
                for rows in called:
                    heapq.heappush(lengths, (-max(_call_ns(side, row) for side, row in zip(sides, rows, strict=True)), rows))
                continue
        cut.append(pair)
    return cut


def _match_calls(sides: Sequence[StepCalls], rows: Sequence[Sequence[int]]) -> tuple[list[tuple[int, int]], list[Rows]]:
    """Calls that both sides make, and those that one makes alone."""
    labels = [[f"{side.thread[row]} {side.names[row]}" for row in of_side] for side, of_side in zip(sides, rows, strict=True)]
    matched = match_in_order(*labels)
    pairs = [(rows[0][first], rows[1][second]) for first, second in matched]
    common = [{pair[number] for pair in pairs} for number in (0, 1)]
    alone: list[Rows] = [(row, None) for row in rows[0] if row not in common[0]]
    alone += [(None, row) for row in rows[1] if row not in common[1]]
    return pairs, alone


def _call_ns(calls: StepCalls, row: int) -> int:
    return int(calls.end[row] - calls.start[row])
