"""Numbers for the threads, processes, devices and streams that a trace names with text, or with more than 64 bits.

Kineto numbers them; Chrome traces of other tools need not. The tables hold numbers, so such a lane gets one of its own: a hash
of its text, the same in every process that reads a part of the file. The text stays as the name of a thread of the host; devices
and streams get a short number once all of them are known.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from typing import Any

import polars as pl

#: numbers of text lanes lie from here to its double: above those of operating systems, and exact in a double
_FIRST = 1 << 50
#: no column holds numbers from here on
_NUMBERS = 1 << 63
#: names of devices and streams that say their number: "gpu:0", "GPU 0", "stream 7"
_NUMBERED = re.compile(r"\s*[A-Za-z]*[\s:#_-]*([0-9]{1,6})\s*")


def lane_number(lane: Any) -> int | None:
    """The number of a thread or process; None where it has neither number nor text."""
    if isinstance(lane, str):
        try:
            lane = int(lane)
        except ValueError:
            return _hash_to_number(lane)
    if not isinstance(lane, int):
        return None
    return lane if -_NUMBERS <= lane < _NUMBERS else _hash_to_number(str(lane))


def lane_column(name: str, lanes: list[Any]) -> pl.Series:
    """A column of the numbers of threads or processes."""
    try:
        return pl.Series(name, lanes, dtype=pl.Int64)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):
        return pl.Series(name, [lane_number(lane) for lane in lanes], dtype=pl.Int64)


def has_text_lanes(frame: pl.DataFrame, columns: Iterable[str] = ("pid", "tid")) -> bool:
    """Whether any event of a frame may lie on a lane that got its number here."""
    return any((frame[name].max() or 0) >= _FIRST for name in columns)  # type: ignore[operator]


def lane_names(events: Iterable[Any]) -> dict[tuple[int, int], str]:
    """Names of the threads among those of the events whose process or thread got its number here."""
    names: dict[tuple[int, int], str] = {}
    for pid, tid in {(event.pid, event.tid) for event in events}:
        numbers = lane_number(pid), lane_number(tid)
        if None not in numbers and numbers != (pid, tid):
            # "12" is a number, too
            texts = [str(lane) for lane, number in zip((pid, tid), numbers, strict=True) if str(lane) != str(number)]
            if texts:
                names[numbers] = f"{texts[0]} {tid}" if texts == [pid] else " ".join(texts)  # type: ignore[index]
    return names


def lane_texts(lanes: Iterable[Any]) -> dict[int, str]:
    """The texts of those of the lanes that got their number here."""
    numbers = ((lane_number(lane), str(lane)) for lane in set(lanes))
    return {number: text for number, text in numbers if number is not None and number >= _FIRST and str(number) != text.strip()}


def short_numbers(texts: Iterable[str], taken: Collection[int]) -> dict[str, int]:
    """A small number for each of the texts that name devices, or streams: the one in the text where it says one, and no other
    text says the same; else the next that nothing has.

    Args:
        texts: any number of times.
        taken: numbers of devices, or streams, that have no text.
    """
    numbers: dict[str, int] = {}
    numbers_told: set[int] = set()
    unnumbered = []
    for text in sorted(set(texts)):
        matched = _NUMBERED.fullmatch(text)
        if matched is not None and int(matched[1]) not in numbers_told:
            numbers[text] = int(matched[1])
            numbers_told.add(int(matched[1]))
        else:
            unnumbered.append(text)
    used = numbers_told.union(taken)
    free = 0
    for text in unnumbered:
        while free in used:
            free += 1
        numbers[text] = free
        free += 1
    return numbers


def _hash_to_number(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return _FIRST + int.from_bytes(digest, "big") % _FIRST
