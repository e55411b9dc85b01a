"""The causes of a changed step, from two sides' recordings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from steplens.comparison.causes.cause import (
    ADDED,
    CALLS,
    CHANGED,
    COMMUNICATION,
    DEVICE,
    HOST,
    OPTIMIZER,
    RECOMPUTED,
    REMOVED,
    REPLACED,
    SAME,
    SHAPES,
    SPEED,
    SYNCHRONISATION,
    TYPES,
    UNKNOWN,
    Cause,
    Causes,
)
from steplens.comparison.causes.cause_side import CauseSide, CauseSource, RecordedSource
from steplens.comparison.causes.groups import Group
from steplens.comparison.causes.matching import match_rows
from steplens.comparison.causes.places import Place, Row, SidePlaces, places_of_sides
from steplens.comparison.causes.sentences import explain_cause
from steplens.comparison.causes.sequences import align_sequences
from steplens.comparison.causes.side_times import SideTimes
from steplens.comparison.causes.trace_times import CALL, DRAINED_TIME, TASK
from steplens.comparison.difference import find_difference
from steplens.comparison.noise import LEAST_STEPS, Floats
from steplens.comparison.recordings import Recording

#: a cause that is a smaller share of all that moved is one with others of its kind
_SMALL = 0.02
#: so many are told apart at most, the largest ones
_MOST_APART = 30
#: a change that is a smaller share of the step is not divided among causes
_LEAST_CHANGE = 0.005
#: of single operators processes differ by more than of whole steps (``operator_steps``)
_OF_OPERATORS = 2.0
_NAMED = 4
#: modules that hold a smaller share of a difference are not named
_LEAST_MODULE = 0.05


def find_causes(before: Sequence[Recording], after: Sequence[Recording]) -> Causes | None:
    """What explains the change of a step; None where no side's calls or tasks tell.

    Args:
        before: the recordings of the earlier side.
        after: those of the later one.
    """
    return explain_change(RecordedSource(before), RecordedSource(after))


def explain_change(before: CauseSource, after: CauseSource) -> Causes | None:
    """What explains the change of a step; None where no side's calls or tasks tell.

    Args:
        before: the earlier side.
        after: the later one.
    """
    # where the device runs behind the host on any side, steps are its periods
    is_behind = before.is_behind or after.is_behind
    for candidate in (DEVICE, HOST) if is_behind else (HOST, DEVICE):
        sides = [source.measure_side(candidate) for source in (before, after)]
        if sides[0] is not None and sides[1] is not None:
            return compare_sides(candidate, sides[0], sides[1])
    return None


def compare_sides(side: str, before: CauseSide, after: CauseSide) -> Causes:
    """The causes of the difference of two sides.

    Args:
        side: HOST or DEVICE: what was measured of both.
        before: the earlier one.
        after: the later one.
    """
    stretches = None
    if before.sequence is not None and after.sequence is not None:
        stretches = align_sequences(before.sequence, after.sequence)
    places = places_of_sides(before.times, after.times, (before.sequence, after.sequence))
    groups = match_rows(*places, stretches)
    change_ns = after.step_ns - before.step_ns
    teller = _Teller((before.times, after.times), places, change_ns, abs(change_ns) > _LEAST_CHANGE * before.step_ns)
    causes = teller.tell_causes(groups.by_key.values())
    named_ns = sum(cause.difference_ns for cause in causes)
    explained = None
    if teller.has_share and any(cause.error_ns is not None for cause in causes):
        certain_ns = sum(cause.difference_ns for cause in causes if cause.is_certain)
        explained = max(1.0 - abs(change_ns - certain_ns) / abs(change_ns), 0.0)
    return Causes(side, tuple(causes), change_ns, change_ns - named_ns, explained)


@dataclass(frozen=True)
class _Teller:
    """Makes causes of groups."""

    times: tuple[SideTimes, SideTimes]
    places: tuple[SidePlaces, SidePlaces]
    change_ns: float
    has_share: bool

    def tell_causes(self, groups: Iterable[Group]) -> list[Cause]:
        """Those beyond chance first, then the largest ones; small ones of a kind and phase are one."""
        means = [times.mean_ns for times in self.times]
        sized = [(group, group.sum_rows(1, means[1]) - group.sum_rows(0, means[0])) for group in groups]
        moved_ns = max(abs(self.change_ns), max((abs(ns) for _, ns in sized), default=0.0))
        ordered = sorted(sized, key=lambda one: -abs(one[1]))
        apart = [group for group, ns in ordered[:_MOST_APART] if abs(ns) >= _SMALL * moved_ns]
        small: dict[tuple[str, str], Group] = {}
        for group, _ in ordered[len(apart) :]:
            key = (group.kind, self._phase_text(group))
            small.setdefault(key, Group(group.kind, idle_cause=group.idle_cause)).absorb_group(group)
        causes = [self._tell_cause(group, means) for group in (*apart, *small.values())]
        causes = [cause for cause in causes if cause.before_ns or cause.after_ns]
        least = _SMALL * moved_ns

        def order_key(cause: Cause) -> tuple[bool, float]:
            return not (cause.is_certain and abs(cause.difference_ns) >= least), -abs(cause.difference_ns)

        return sorted(causes, key=order_key)

    def _group_rows(self, group: Group, side: int) -> list[tuple[Row, float]]:
        return [(self.places[side].rows[number], share) for number, share in group.rows[side].items()]

    def _phase_text(self, group: Group) -> str:
        """The phases that rows of a group are of, the one with most of its time first."""
        weights: Counter[str] = Counter()
        for side in range(2):
            mean_ns = self.times[side].mean_ns
            for row, share in self._group_rows(group, side):
                phase = row.waited_in[1] if group.kind == SYNCHRONISATION and row.leaf == DRAINED_TIME else row.place[0]
                weights[phase] += int(mean_ns[row.number] * share) + 1
        most = sum(weights.values())
        return " and ".join(phase for phase, weight in weights.most_common(2) if phase and weight > _LEAST_MODULE * most)

    def _tell_cause(self, group: Group, means: Sequence[Floats]) -> Cause:
        before_ns, after_ns = (group.sum_rows(side, means[side]) for side in range(2))
        calls = [self._count_calls(group, side) for side in range(2)]
        weights = self._weigh_rows(group, means)
        names = _largest_names(weights["name"], _NAMED)
        paths = {row.place[2] for side in range(2) for row, _ in self._group_rows(group, side)}
        texts = self._different_texts(group, means)
        cause = Cause(
            kind=group.kind,
            part=next(iter(_largest_names(weights["part"], 1)), ""),
            phase=self._phase_text(group),
            names=names,
            modules=_largest_names(weights["module"], None),
            path=next(iter(paths)) if len(paths) == 1 else (),
            before_ns=before_ns,
            after_ns=after_ns,
            before_calls=calls[0],
            after_calls=calls[1],
            error_ns=self._error_ns(group, before_ns, after_ns),
            share=(after_ns - before_ns) / self.change_ns if self.has_share else None,
            work=self._work_kind(group),
            before_text=texts[0],
            after_text=texts[1],
            idle_cause=group.idle_cause,
        )
        return replace(cause, sentence=explain_cause(cause))

    def _weigh_rows(self, group: Group, means: Sequence[Floats]) -> dict[str, dict[str, float]]:
        """By part, module and name the difference that rows make."""
        weights: dict[str, dict[str, float]] = {name: defaultdict(float) for name in ("part", "module", "name")}
        for side, sign in enumerate((-1.0, 1.0)):
            for row, share in self._group_rows(group, side):
                ns = sign * share * float(means[side][row.number])
                weights["part"][row.part] += ns
                if row.place[1]:
                    weights["module"][row.place[1]] += ns
                if name := _name_of(group, row, side):
                    weights["name"][name] += ns
        return weights

    def _count_calls(self, group: Group, side: int) -> float:
        """How many calls: of operators that are named those, else all."""
        if group.kind == CALLS:
            return sum(self.places[side].calls.get(place, 0.0) for place in self._named_places(group))
        names = set(group.names[side])
        rows = [(row, share) for row, share in self._group_rows(group, side) if row.leaf in (CALL, TASK)]
        rows = rows or self._group_rows(group, side)
        named_rows = [(row, share) for row, share in rows if row.place[2] and row.place[2][-1] in names] if names else rows
        return sum(row.calls * share for row, share in named_rows)

    def _named_places(self, group: Group) -> set[Place]:
        """Where the operators are that a group is named after."""
        names = {name for of_side in group.names for name in of_side}
        places = set()
        for side in range(2):
            for row, _ in self._group_rows(group, side):
                phase, module, path = row.place
                lengths = [length for length, name in enumerate(path, 1) if name in names]
                places |= {(phase, module, path[: lengths[0]])} if lengths else set()
        return places

    def _error_ns(self, group: Group, before_ns: float, after_ns: float) -> float | None:
        samples = []
        for side in range(2):
            recordings = [times for times in self.times[side].recordings if times.step_count >= LEAST_STEPS]
            of_side = [group.sample_sum(side, times) for times in recordings]
            samples.append([replace(sample, spread=_OF_OPERATORS * sample.spread) for sample in of_side])
        if not samples[0] or not samples[1]:
            return None
        return find_difference(samples[0], samples[1], unit=max(before_ns, after_ns)).error

    def _work_kind(self, group: Group) -> str:
        if group.kind in (CALLS, SHAPES, TYPES, REPLACED, ADDED, REMOVED, RECOMPUTED, OPTIMIZER):
            return CHANGED
        if group.kind == SPEED:
            sides = [any(row.shapes for row, _ in self._group_rows(group, side)) for side in range(2)]
            return SAME if all(sides) else UNKNOWN
        if group.kind in (COMMUNICATION, SYNCHRONISATION):
            counts = [self._count_calls(group, side) for side in range(2)]
            volumes = [{row.detail for row, _ in self._group_rows(group, side)} for side in range(2)]
            is_same = abs(counts[0] - counts[1]) <= _SMALL * max(counts) and volumes[0] == volumes[1]
            return SAME if is_same else CHANGED
        return UNKNOWN

    def _different_texts(self, group: Group, means: Sequence[Floats]) -> tuple[str, str]:
        """What is different, of each side."""
        if group.kind in (SHAPES, TYPES):
            texts = [self._inputs_text(group, side, means[side]) for side in range(2)]
        elif any(group.names):
            texts = [", ".join(_largest_names(self._named_ns(group, side, means[side]), _NAMED)) for side in range(2)]
        else:
            texts = [group.before_text, group.after_text]
        return texts[0], texts[1]

    def _named_ns(self, group: Group, side: int, mean_ns: Floats) -> dict[str, float]:
        """Of the names that a side has alone the time below them, of those of forward first."""
        times = dict.fromkeys(map(plain_name, group.names[side]), 0.0)
        for row, share in self._group_rows(group, side):
            name = next((name for name in row.place[2] if name in group.names[side]), None)
            if name is not None:
                times[plain_name(name)] += share * float(mean_ns[row.number])
        return times

    def _inputs_text(self, group: Group, side: int, mean_ns: Floats) -> str:
        rows = [(row, share) for row, share in self._group_rows(group, side) if row.leaf in (CALL, TASK)]
        if not rows:
            return ""
        if group.kind == TYPES:
            of_types: dict[str, float] = defaultdict(float)
            for row, share in rows:
                for name in {name for name in row.types.split(";") if name and name not in ("Scalar", "ScalarList")}:
                    of_types[name] += share * float(mean_ns[row.number])
            return ", ".join(_largest_names(of_types, 2))
        row = max(rows, key=lambda one: one[1] * float(mean_ns[one[0].number]))[0]
        return " ".join(f"[{shape}]" for shape in row.shapes.split(";") if shape)


def _name_of(group: Group, row: Row, side: int) -> str:
    path = row.place[2]
    if group.kind == SYNCHRONISATION and row.leaf == DRAINED_TIME:
        return row.waited_in[0]
    if not path:
        return ""
    if any(group.names):
        return plain_name(next((name for name in path if name in group.names[side]), path[-1]))
    return plain_name(row.top_place[2][-1] if row.leaf not in (CALL, TASK) else path[-1])


def plain_name(name: str) -> str:
    """A node of the backward pass without what runs it."""
    return name.removeprefix("autograd::engine::evaluate_function: ")


def _largest_names(weights: dict[str, float], count: int | None) -> tuple[str, ...]:
    """Names with the largest weights, at most so many; without those that hardly matter."""
    ordered = sorted(weights, key=lambda name: (-abs(weights[name]), name))
    most = sum(abs(weight) for weight in weights.values())
    return tuple(name for name in ordered if abs(weights[name]) >= _LEAST_MODULE * most)[:count]
