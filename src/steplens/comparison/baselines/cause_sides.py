"""What tells the causes of a change as the document of a baseline, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from steplens.analysis.steps.times import DEVICE_PARTS, HOST_PARTS
from steplens.comparison.baselines.causes_document import (
    CausesDocument,
    NameTree,
    NumberedTexts,
    RowTimesDocument,
    SequenceDocument,
    TimesDocument,
)
from steplens.comparison.baselines.kept_times import MOST_LEVEL, KeptTimes, keep_times
from steplens.comparison.causes.calls import SEPARATOR
from steplens.comparison.causes.cause import DEVICE, HOST
from steplens.comparison.causes.cause_side import CauseSide, CauseSource, mean_step
from steplens.comparison.causes.sequences import BETWEEN, LONGEST, NO_ANSWER, OperatorSequence
from steplens.comparison.causes.side_times import SideTimes, blank_keys
from steplens.comparison.causes.trace_times import CALL, COLLECTIVE, DRAINED_TIME, GAP, IDLE_TIME, KEYS, TASK, WAIT
from steplens.comparison.recordings import Recording

#: rows of a side: where there are more, they are told apart by less: not by shapes of inputs, of which a program may have others
#: in each step, then not by modules either
_MOST_ROWS = 8_000
_BLANKED = ((), ("shapes", "types"), ("shapes", "types", "module"))
#: what rows and paths may come to as a file is read: characters of all paths, and pairs of names on the paths of all rows
_MOST_CHARACTERS, _MOST_PAIRS = 1 << 26, 1 << 28
_TEXTS = tuple(name for name, dtype in KEYS.items() if dtype == pl.String() and name != "path")
_LEAVES = frozenset((CALL, GAP, WAIT, TASK, COLLECTIVE, IDLE_TIME, DRAINED_TIME))
#: the character of a step that is as long as the median
_MIDDLE = ord("?")
_NO_PATH = -1


def describe_causes(source: CauseSource) -> CausesDocument:
    """A side, as far as it tells causes; of the same recordings it is the same each time."""
    sides = {side: source.measure_side(side) for side in (HOST, DEVICE)}
    tree = _TreeBuilder()
    times = {side: _describe_times(measured.times, tree) for side, measured in sides.items() if measured is not None}
    sequence = next((measured.sequence for measured in sides.values() if measured is not None), None)
    document = CausesDocument(
        is_behind=source.is_behind,
        paths=tree.names,
        sequence=None if sequence is None else _describe_sequence(sequence, tree),
        host=times.get(HOST),
        device=times.get(DEVICE),
    )
    try:
        _check_size(document, _join_names(tree.names))
    except ValueError:
        # calls that lie in each other by the thousand
        return CausesDocument(source.is_behind, NameTree([], []), None, None, None)
    return document


class KeptSource:
    """``CauseSource`` of a document.

    Args:
        document: whose types and bounds were checked.
        recordings: of the side.

    Raises:
        ValueError: it contradicts itself.
    """

    def __init__(self, document: CausesDocument, recordings: Sequence[Recording]) -> None:
        self.is_behind = document.is_behind
        self._recordings = recordings
        paths = _join_names(document.paths)
        _check_size(document, paths)
        self._sequence = None if document.sequence is None else _read_sequence(document.sequence, paths)
        of_sides = ((HOST, document.host, HOST_PARTS), (DEVICE, document.device, DEVICE_PARTS))
        self._times = {side: _read_times(times, paths, parts) for side, times, parts in of_sides if times is not None}

    def measure_side(self, side: str) -> CauseSide | None:
        """As in ``CauseSource``."""
        times = self._times.get(side)
        return None if times is None else CauseSide(times, self._sequence, mean_step(self._recordings, side))


class _TreeBuilder:
    """Numbers paths."""

    def __init__(self) -> None:
        self.names = NameTree([], [])
        self._numbers: dict[tuple[int, str], int] = {}

    def number_path(self, text: str) -> int:
        """The number of a path, of names joined by ``SEPARATOR``."""
        number = _NO_PATH
        for name in text.split(SEPARATOR) if text else ():
            key = (number, name)
            if key not in self._numbers:
                self._numbers[key] = len(self.names.name)
                self.names.name.append(name)
                self.names.outer.append(number)
            number = self._numbers[key]
        return number


def _join_names(tree: NameTree) -> list[str]:
    """The text of each path, and of ``_NO_PATH`` behind them."""
    if len(tree.name) != len(tree.outer):
        raise ValueError("columns of a table have other lengths")
    texts: list[str] = []
    characters = 0
    for number, (name, outer) in enumerate(zip(tree.name, tree.outer, strict=True)):
        if not _NO_PATH <= outer < number:
            raise ValueError("a path begins with none that is there")
        texts.append(name if outer == _NO_PATH else f"{texts[outer]}{SEPARATOR}{name}")
        characters += len(texts[-1])
        if characters > _MOST_CHARACTERS:
            raise ValueError("its calls lie too deep in each other")
    return [*texts, ""]


def _check_size(document: CausesDocument, paths: Sequence[str]) -> None:
    depths = np.array([text.count(SEPARATOR) + 1 for text in paths], dtype=np.int64)
    for times in (document.host, document.device, document.sequence):
        if times is not None and (depths[_check_range(times.path, len(paths))] ** 2).sum() > _MOST_PAIRS:
            raise ValueError("its calls lie too deep in each other")


def _check_range(paths: Sequence[int], count: int) -> list[int]:
    """Numbers of paths, which are ``_NO_PATH`` or of one that there is."""
    if any(not _NO_PATH <= path < count - 1 for path in paths):
        raise ValueError("a row has a path that is not there")
    return list(paths)


def _number_texts(values: Sequence[str]) -> NumberedTexts:
    numbers = {text: number for number, text in enumerate(dict.fromkeys(values))}
    return NumberedTexts(list(numbers), [numbers[text] for text in values])


def _read_texts(numbered: NumberedTexts) -> list[str]:
    if any(number >= len(numbered.texts) for number in numbered.rows):
        raise ValueError("a row has a text that is not there")
    return [numbered.texts[number] for number in numbered.rows]


def _describe_sequence(sequence: OperatorSequence, tree: _TreeBuilder) -> SequenceDocument:
    phases, modules, paths = zip(*(token.split(BETWEEN, 2) for token in sequence.tokens), strict=True)
    numbers = [tree.number_path(path) for path in paths]
    return SequenceDocument(_number_texts(phases), _number_texts(modules), numbers, list(sequence.answers))


def _read_sequence(document: SequenceDocument, paths: Sequence[str]) -> OperatorSequence:
    columns = (_read_texts(document.phase), _read_texts(document.module), [paths[number] for number in document.path])
    count = len(document.path)
    if {len(column) for column in (*columns, document.answers)} != {count} or not 0 < count <= LONGEST:
        raise ValueError("columns of the operators of a step have other lengths")
    if any(not NO_ANSWER <= answer < count for answer in document.answers):
        raise ValueError("an operator answers to none that is there")
    return OperatorSequence(tuple(map(BETWEEN.join, zip(*columns, strict=True))), tuple(document.answers))


def _describe_times(times: SideTimes, tree: _TreeBuilder) -> TimesDocument | None:
    """None of too many rows."""
    fitting = (times if not names else blank_keys(times, names) for names in _BLANKED)
    times_that_fit = next((rows for rows in fitting if rows.keys.height <= _MOST_ROWS), None)
    if times_that_fit is None:
        return None
    keys = times_that_fit.keys
    return TimesDocument(
        **{name: _number_texts(keys[name].to_list()) for name in _TEXTS},
        path=[tree.number_path(path) for path in keys["path"].to_list()],
        ranges=keys["ranges"].to_list(),
        calls=[float(f"{calls:.12g}") for calls in keys["calls"].to_list()],
        recordings=[_describe_recording(keep_times(recording)) for recording in times_that_fit.recordings],
    )


def _read_times(document: TimesDocument, paths: Sequence[str], parts: Sequence[str]) -> SideTimes:
    columns: dict[str, list[str] | list[int]] = {name: _read_texts(getattr(document, name)) for name in _TEXTS}
    columns |= {"path": [paths[number] for number in document.path], "ranges": document.ranges}
    count = len(document.path)
    if not count or {len(column) for column in (*columns.values(), document.calls)} != {count}:
        raise ValueError("columns of a table have other lengths")
    if not set(columns["part"]) <= set(parts) or not set(columns["leaf"]) <= _LEAVES or min(document.calls) < 0.0:
        raise ValueError("a row is of no part of a step")
    keys = pl.DataFrame([pl.Series(name, columns[name], dtype) for name, dtype in KEYS.items()])
    with_calls = keys.with_columns(calls=pl.Series(document.calls, dtype=pl.Float64))
    return SideTimes(with_calls, tuple(_read_recording(recording, count) for recording in document.recordings))


def _describe_recording(times: KeptTimes) -> RowTimesDocument:
    characters = (times.levels.astype(np.int64) + _MIDDLE).astype(np.uint8).tobytes().decode("ascii")
    return RowTimesDocument(
        waited_share=times.waited_share,
        mean_ns=times.mean_ns.astype(np.int64).tolist(),
        spread=times.spread.tolist(),
        rows=times.rows.tolist(),
        steps=times.step_count,
        blocks=times.blocks,
        levels=characters,
    )


def _read_recording(document: RowTimesDocument, count: int) -> KeptTimes:
    if not document.levels.isascii():
        raise ValueError("a single step is too far off")
    levels = np.frombuffer(document.levels.encode("ascii"), dtype=np.uint8).astype(np.int16) - _MIDDLE
    rows, columns = np.array(document.rows, dtype=np.int64), document.steps + document.blocks
    if len(document.mean_ns) != count or len(document.spread) != count or levels.size != rows.size * columns:
        raise ValueError("columns of a table have other lengths")
    if rows.size and (rows.max() >= count or (np.diff(np.sort(rows)) == 0).any() or np.abs(levels).max() > MOST_LEVEL):
        raise ValueError("single steps are of a row that is not there, or too far off")
    return KeptTimes(
        mean_ns=np.array(document.mean_ns, dtype=np.float64),
        waited_share=document.waited_share,
        spread=np.array(document.spread, dtype=np.int64),
        rows=rows,
        levels=levels.astype(np.int8).reshape(rows.size, columns),
        blocks=document.blocks,
    )
