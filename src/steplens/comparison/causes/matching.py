"""Rows of both sides matched by place, shapes and types, so that each difference has one cause."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from steplens.analysis.device import idle
from steplens.analysis.steps.times import DEVICE_PARTS, HOST_PARTS
from steplens.comparison.causes.cause import (
    ADDED,
    CALLS,
    COMMUNICATION,
    GAPS,
    IDLE,
    LOADER,
    OPTIMIZER,
    RECOMPUTED,
    REMOVED,
    REPLACED,
    SHAPES,
    SPEED,
    SYNCHRONISATION,
    TYPES,
)
from steplens.comparison.causes.groups import Group, Groups
from steplens.comparison.causes.places import Place, Row, SidePlaces
from steplens.comparison.causes.sequences import Stretch
from steplens.comparison.causes.trace_times import CALL, COLLECTIVE, DRAINED_TIME, TASK, WAIT

_DATA, _DEVICE_WAIT = HOST_PARTS[0], HOST_PARTS[4]
_COMMUNICATION = DEVICE_PARTS[1]
_FORWARD, _BACKWARD, _OPTIMIZER_PHASE = "forward", "backward", "optimizer"
#: how an optimizer does its work, by names of its operators
_FUSED, _FOREACH, _SINGLE = "fused", "foreach", "for each parameter"
_HOST_LATE = set(idle.HOST_CAUSES)
#: counts that differ by less are the same: means over steps
_SAME_COUNT = 1e-6


def match_rows(before: SidePlaces, after: SidePlaces, stretches: Sequence[Stretch] | None) -> Groups:
    """All rows of both sides in groups of one cause each.

    Args:
        before: the earlier side.
        after: the later one.
        stretches: what of their sequences of operators has no counterpart (``sequences.align``); None where that is not known.
    """
    return _Matching(before, after, stretches or ()).groups


class _Matching:
    """Sorts rows into groups."""

    def __init__(self, before: SidePlaces, after: SidePlaces, stretches: Sequence[Stretch]) -> None:
        self.groups = Groups()
        self.by_id: dict[int, Group] = {}
        self.loose: dict[Place, tuple[list[tuple[Place, Row]], list[tuple[Place, Row]]]] = defaultdict(lambda: ([], []))
        self.sides = (before, after)
        self.in_stretches = self._name_stretches(stretches)
        ways = [_optimizer_way(side) for side in self.sides]
        self.optimizers = tuple(ways) if all(ways) and ways[0] != ways[1] else None
        places: dict[Place, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
        for number, side in enumerate(self.sides):
            for row in side.rows:
                group = self._special_group(row)
                if group is not None:
                    group.take_row(number, row.number, 1.0)
                else:
                    places[row.place][number].append(row)
        common = {}
        for place, both in places.items():
            known_places = [place in side.known_places or not place[2] for side in self.sides]
            if all(known_places):
                common[place] = both
                continue
            for row in both[known_places.index(True)]:
                self._take_one_sided(known_places.index(True), row)
        self.changed_inside = self._group_loose()
        for place, both in common.items():
            self._match_place(place, both)

    def _name_stretches(self, stretches: Sequence[Stretch]) -> tuple[dict[Place, dict[int, float]], ...]:
        """Of each place of a side's outermost operators how many of its calls lie in which stretch."""
        stretch_counts: tuple[dict[Place, dict[int, float]], ...] = ({}, {})
        for stretch in stretches:
            lost = Counter(self.sides[0].sequence[place] for place in stretch.before)
            gained = Counter(self.sides[1].sequence[place] for place in stretch.after)
            # what is on both sides was moved
            moved = lost & gained
            lost, gained = lost - moved, gained - moved
            group = self._stretch_group(list(lost), list(gained)) if lost or gained else None
            if group is None:
                continue
            for side, counts in enumerate((lost, gained)):
                for place, count in counts.items():
                    of_place = stretch_counts[side].setdefault(place, {})
                    of_place[id(group)] = of_place.get(id(group), 0.0) + count
                    self.by_id[id(group)] = group
        return stretch_counts

    def _stretch_group(self, lost: list[Place], gained: list[Place]) -> Group:
        names = tuple(tuple(sorted({place[2][-1] for place in places})) for places in (lost, gained))
        if lost and gained:
            kind = REPLACED
        else:
            other_side = self.sides[1] if lost else self.sides[0]
            more = REMOVED if lost else ADDED
            kind = CALLS if all(place in other_side.known_places for place in (*lost, *gained)) else more
        return self.groups.group_of_names(kind, *names)

    def _special_group(self, row: Row) -> Group | None:
        """The group of a row whose kind says what it is; None of those that have to be matched."""
        if row.part == _DATA or row.idle_cause == idle.DATA:
            return self.groups.find_group(LOADER)
        if row.leaf == COLLECTIVE or row.part == _COMMUNICATION:
            return self.groups.find_group(COMMUNICATION, row.place[2])
        if row.leaf == WAIT or row.part == _DEVICE_WAIT or row.idle_cause == idle.SYNCHRONIZATION:
            return self.groups.find_group(SYNCHRONISATION)
        if self.optimizers is not None and _OPTIMIZER_PHASE in (row.place[0], row.part.removesuffix("_ns")):
            group = self.groups.find_group(OPTIMIZER)
            group.before_text, group.after_text = self.optimizers
            return group
        return None

    def _match_place(self, place: Place, rows: tuple[list[Row], list[Row]]) -> None:
        calls = [[row for row in of_side if row.leaf in (CALL, TASK)] for of_side in rows]
        other_rows = [[row for row in of_side if row.leaf not in (CALL, TASK)] for of_side in rows]
        self._match_calls(place, calls[0], calls[1])
        late = [_count_late(of_side) for of_side in other_rows]
        for side, of_side in enumerate(other_rows):
            self._take_drained(side, [row for row in of_side if row.leaf == DRAINED_TIME], late[side], late[1 - side])
        self._match_gaps(place, *([row for row in of_side if row.leaf != DRAINED_TIME] for of_side in other_rows))

    def _take_drained(self, side: int, rows: Sequence[Row], own_count: float, other_count: float) -> None:
        """Idle time behind waits of the host: what the host does then, but for waits that the other side has not."""
        same = min(other_count / own_count, 1.0) if own_count else 1.0
        for row in rows:
            self._gap_group(row).take_row(side, row.number, same)
            self.groups.find_group(SYNCHRONISATION).take_row(side, row.number, 1.0 - same)

    def _take_one_sided(self, side: int, row: Row) -> None:
        """A row at a place that the other side does not have: of the outermost such place around it."""
        phase, module, path = row.place
        other_side = self.sides[1 - side]
        length = next(
            (
                length
                for length in range(row.ranges + 1, len(path) + 1)
                if (phase, module, path[:length]) not in other_side.known_places
            ),
            len(path),
        )
        outermost = (phase, module, path[:length])
        shares = self._stretch_shares(side, outermost)
        for group, share in shares:
            group.take_row(side, row.number, share)
        if not shares:
            self.loose[phase, module, path[: length - 1]][side].append((outermost, row))

    def _stretch_shares(self, side: int, place: Place) -> list[tuple[Group, float]]:
        counts = self.in_stretches[side].get(place, {})
        total = sum(counts.values())
        return [(self.by_id[number], count / total) for number, count in counts.items()]

    def _match_calls(self, place: Place, before: Sequence[Row], after: Sequence[Row]) -> None:
        """Calls at a place that both sides have: those with the same inputs, then those with others, then those in excess."""
        phase, _, path = place
        name = path[-1] if path else ""
        # an operator that calls others than before is itself one of what was replaced
        alike = self.changed_inside.get(place) or self.groups.find_group(SPEED, phase, name)
        by_inputs: dict[tuple[str, str], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
        for side, rows in enumerate((before, after)):
            for row in rows:
                by_inputs[row.shapes, row.types][side].append(row)
        left: list[list[tuple[Row, float]]] = [[], []]
        for both in by_inputs.values():
            counts = [sum(row.calls for row in rows) for rows in both]
            fewer = min(counts)
            for side, rows in enumerate(both):
                # what begins in another part has time here and no call
                same = 1.0 if counts[side] <= _SAME_COUNT else fewer / counts[side]
                for row in rows:
                    alike.take_row(side, row.number, same)
                    if same < 1.0 - _SAME_COUNT:
                        left[side].append((row, 1.0 - same))
        counts = [sum(row.calls * share for row, share in rows) for rows in left]
        changed_count = min(counts)
        for side, left_rows in enumerate(left):
            if not left_rows:
                continue
            changed = changed_count / counts[side] if counts[side] > _SAME_COUNT else 0.0
            group = self.groups.find_group(self._input_kind(left), phase, name) if changed > _SAME_COUNT else None
            excess = self._excess_groups(side, place, left_rows[0][0].ranges) if changed < 1.0 - _SAME_COUNT else []
            for row, share in left_rows:
                if group is not None:
                    group.take_row(side, row.number, share * changed)
                for excess_group, part in excess:
                    excess_group.take_row(side, row.number, share * (1.0 - changed) * part)

    @staticmethod
    def _input_kind(left: Sequence[Sequence[tuple[Row, float]]]) -> str:
        """Whether the inputs that have no counterpart differ in their types, or in their shapes alone."""
        types = [Counter[str]() for _ in left]
        for side, rows in enumerate(left):
            for row, share in rows:
                types[side][row.types] += round(row.calls * share * 1000)
        return TYPES if set(types[0]) != set(types[1]) and all(any(side) for side in types) else SHAPES

    def _excess_groups(self, side: int, place: Place, ranges: int) -> list[tuple[Group, float]]:
        """What calls belong to that one side has more of: to the outermost operator around them of which it has more, too."""
        phase, module, path = place
        own_side, other_side = self.sides[side].calls, self.sides[1 - side].calls
        length = next(
            (
                length
                for length in range(ranges + 1, len(path))
                if own_side.get((phase, module, path[:length]), 0.0)
                > other_side.get((phase, module, path[:length]), 0.0) + _SAME_COUNT
            ),
            len(path),
        )
        outermost = (phase, module, path[:length])
        names = ((), path[:length][-1:])
        more = self.groups.group_of_names(CALLS, *(names if side else names[::-1]), phase)
        return self._stretch_shares(side, outermost) or [(more, 1.0)]

    def _match_gaps(self, place: Place, before: Sequence[Row], after: Sequence[Row]) -> None:
        """Time before operators: of as many as both sides have, and of those in excess."""
        counts = [side.calls.get(place) for side in self.sides]
        for side, rows in enumerate((before, after)):
            own_side, other_side = counts[side], counts[1 - side]
            same = min(other_side / own_side, 1.0) if own_side and other_side else 1.0
            for row in rows:
                self._gap_group(row).take_row(side, row.number, same)
                if same < 1.0 - _SAME_COUNT:
                    for group, share in self._excess_groups(side, place, row.ranges):
                        group.take_row(side, row.number, (1.0 - same) * share)

    def _gap_group(self, row: Row) -> Group:
        phase, _, path = row.top_place
        if not row.idle_cause:
            return self.groups.find_group(GAPS, row.part, phase, path)
        kind = GAPS if row.idle_cause in _HOST_LATE else IDLE
        group = self.groups.find_group(kind, row.idle_cause, *((phase, path) if kind == GAPS else ()))
        group.idle_cause = row.idle_cause
        return group

    def _group_loose(self) -> dict[Place, Group]:
        """What one side alone has below an operator that both have: replaced where the other one has something else there.

        Returns:
            of each such operator the group.
        """
        forward = [{row.place[2][-1] for row in side.rows if row.place[0] == _FORWARD and row.place[2]} for side in self.sides]
        groups = {}
        for outer, loose in self.loose.items():
            names = tuple(tuple(sorted({place[2][-1] for place, _ in rows})) for rows in loose)
            kind = REPLACED if all(names) else ADDED if names[1] else REMOVED
            if (
                outer[0] == _BACKWARD
                and not all(names)
                and all(set(own_side) <= forward[side] for side, own_side in enumerate(names))
            ):
                kind = RECOMPUTED
            group = groups[outer] = self.groups.group_of_names(kind, *names, outer[0], outer[2])
            for side, rows in enumerate(loose):
                for _, row in rows:
                    group.take_row(side, row.number, 1.0)
        return groups


def _count_late(rows: Sequence[Row]) -> float:
    """How often a step the device idles there because the host is late: each time the next task is launched at last."""
    return sum(row.calls for row in rows if row.idle_cause == idle.LAUNCH)


def _optimizer_way(side: SidePlaces) -> str:
    """The classes of a side's optimizers and how they work, such as "AdamW (foreach)"; empty where it has none."""
    if not side.optimizers:
        return ""
    of_optimizer = (row for row in side.rows if row.place[0] == _OPTIMIZER_PHASE and row.leaf in (CALL, TASK))
    names = {row.place[2][-1] for row in of_optimizer if row.place[2]}
    is_foreach = any("_foreach_" in name for name in names)
    way = _FUSED if any("_fused_" in name for name in names) else _FOREACH if is_foreach else _SINGLE
    return f"{', '.join(sorted(side.optimizers))} ({way})"
