"""The rows of both sides by place: phase, module, and the calls around, without what names of ranges say of the optimizer."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from steplens.comparison.causes.calls import SEPARATOR
from steplens.comparison.causes.sequences import OperatorSequence, token_parts
from steplens.comparison.causes.side_times import SideTimes
from steplens.comparison.causes.trace_times import CALL, DRAINED_TIME, IDLE_TIME, TASK

#: phase, module, and names from the outermost one on
Place = tuple[str, str, tuple[str, ...]]

#: ranges of PyTorch's optimizers have the name of the class in them
_OPTIMIZER_RANGE = re.compile(r"^(Optimizer\.\w+)#(\w+)\.\w+$")
#: where sides have fewer of their modules in common, modules were renamed and tell nothing
_COMMON_MODULES = 0.5


@dataclass(frozen=True)
class Row:
    """A row of ``SideTimes.keys``."""

    number: int
    part: str
    leaf: str
    place: Place
    ranges: int
    shapes: str
    types: str
    detail: str
    calls: float

    @property
    def idle_cause(self) -> str:
        """Why the device idles; empty of other rows."""
        return self.detail.partition(SEPARATOR)[0] if self.leaf in (IDLE_TIME, DRAINED_TIME) else ""

    @property
    def waited_in(self) -> tuple[str, str]:
        """Of idle time behind a wait of the host the operator that waited, and its phase; empty of other rows."""
        _, _, waited = self.detail.partition(SEPARATOR) if self.leaf == DRAINED_TIME else ("", "", "")
        name, _, phase = waited.rpartition(SEPARATOR)
        return name, phase

    @property
    def top_place(self) -> Place:
        """The place of the outermost operator around it."""
        phase, module, path = self.place
        return phase, module, path[: self.ranges + 1]


@dataclass(frozen=True)
class SidePlaces:
    """A side by place.

    Attributes:
        rows: all of them.
        known_places: places that the side has, with those around them.
        calls: how many calls a step has at a place: operators on the host, tasks on a device, outermost operators of a step.
        optimizers: classes of its optimizers.
        sequence: places of the outermost operators of a usual step, in order of time; empty where they are not known.
    """

    rows: tuple[Row, ...]
    known_places: frozenset[Place]
    calls: dict[Place, float]
    optimizers: frozenset[str]
    sequence: tuple[Place, ...]


def places_of_sides(
    before: SideTimes, after: SideTimes, sequences: tuple[OperatorSequence | None, OperatorSequence | None]
) -> tuple[SidePlaces, SidePlaces]:
    """Both sides by place.

    Shapes of inputs, or types, that one side alone recorded tell nothing of a change, and are left out.
    """
    modules = [set(side.keys["module"].unique().to_list()) - {""} for side in (before, after)]
    has_modules = len(modules[0] & modules[1]) >= _COMMON_MODULES * max(len(modules[0]), len(modules[1]), 1)
    shapes = _texts_of_both(before.keys["shapes"].to_list(), after.keys["shapes"].to_list())
    types = _texts_of_both(_input_types(before), _input_types(after))
    first, second = (
        _side_places(side, sequence, has_modules, *inputs)
        for side, sequence, *inputs in zip((before, after), sequences, shapes, types, strict=True)
    )
    return first, second


def _texts_of_both(before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    """Texts of the rows of both sides; none where a side has none at all."""
    return (before, after) if any(before) and any(after) else ([""] * len(before), [""] * len(after))


def _input_types(side: SideTimes) -> list[str]:
    # some sources have shapes there as well
    return [text if any(map(str.isalpha, text)) else "" for text in side.keys["types"].to_list()]


def _side_places(
    side: SideTimes, sequence: OperatorSequence | None, has_modules: bool, shapes: Sequence[str], types: Sequence[str]
) -> SidePlaces:
    rows, known_places, optimizers = [], set(), set()
    calls: dict[Place, float] = defaultdict(float)
    for number, key in enumerate(side.keys.iter_rows(named=True)):
        names = tuple(key["path"].split(SEPARATOR)) if key["path"] else ()
        optimizers |= {range_match[2] for name in names[: key["ranges"]] if (range_match := _OPTIMIZER_RANGE.match(name))}
        place = make_place(key["phase"], key["module"] if has_modules else "", names)
        row = Row(
            number, key["part"], key["leaf"], place, min(key["ranges"], max(len(names) - 1, 0)), shapes[number], types[number],
            key["detail"], key["calls"],
        )  # fmt: skip
        rows.append(row)
        if row.leaf in (CALL, TASK):
            calls[place] += row.calls
        known_places |= {(*place[:2], place[2][:length]) for length in range(row.ranges + 1, len(names) + 1)}
    in_order = _token_places(sequence, has_modules) if sequence is not None else ()
    counts = Counter(in_order)
    calls |= {place: float(count) for place, count in counts.items() if place not in calls}
    # a device has no time of operators that launch nothing
    known_places |= set(in_order)
    return SidePlaces(tuple(rows), frozenset(known_places), dict(calls), frozenset(optimizers), in_order)


def make_place(phase: str, module: str, names: tuple[str, ...]) -> Place:
    """A place; ranges of optimizers of every class have one name."""
    return phase, module, tuple(range_match[1] if (range_match := _OPTIMIZER_RANGE.match(name)) else name for name in names)


def _token_places(sequence: OperatorSequence, has_modules: bool) -> tuple[Place, ...]:
    """The place of each outermost operator of a step."""
    places = []
    for token in sequence.tokens:
        phase, module, names = token_parts(token)
        places.append(make_place(phase, module if has_modules else "", names))
    return tuple(places)
