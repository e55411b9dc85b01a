"""Calls that a Chrome trace writes as two events, where they begin (``ph`` B) and where they end (E), brought together.

Kineto writes a call as one event; tools that write while the program runs do not know the end yet. The two halves may lie any
distance apart in the file, and in parts that two processes read, so they are kept as columns until all are there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Raw

from steplens.readers.kineto.kineto_lanes import lane_column
from steplens.readers.kineto.kineto_structs import TEXT_TIMES, Layout
from steplens.readers.kineto.kineto_times import ns_text, time_column

#: calls that become objects at a time
_BATCH = 1 << 14

Rows = npt.NDArray[np.int64]


def halves_frame(events: list[Any], layout: Layout) -> pl.DataFrame:
    """Beginnings and ends of calls, in the order of the file. ``args`` is their JSON text."""
    return pl.DataFrame(
        [
            pl.Series("begins", [event.__class__ is layout.begin for event in events], dtype=pl.Boolean),
            pl.Series("name", [event.name for event in events], dtype=pl.String),
            pl.Series("category", [event.cat for event in events], dtype=pl.String),
            lane_column("pid", [event.pid for event in events]),
            lane_column("tid", [event.tid for event in events]),
            time_column(events, text=layout.text_times),
            pl.Series("args", [bytes(event.args) for event in events], dtype=pl.Binary),
        ]
    )


@dataclass(frozen=True)
class Pairs:
    """Which halves belong together.

    Attributes:
        begins: row of the beginning of each call, ascending.
        ends: row of its end.
        unended: beginnings without an end.
        unbegun: ends without a beginning.
    """

    begins: Rows
    ends: Rows
    unended: int
    unbegun: int


def pair_halves(halves: pl.DataFrame) -> Pairs:
    """Bring the halves of each thread together by their nesting, in the order of time and, where that is equal, of the file.

    An end closes the innermost open call or, where it has a name, the innermost open call of that name: calls inside that one
    have no end then.

    Args:
        halves: of ``halves_frame``, with ``time_ns``.
    """
    order = halves.select("begins", "name", "pid", "tid", "time_ns").with_row_index("row")
    order = order.sort("pid", "tid", "time_ns", maintain_order=True)
    begins, ends = [], []
    unbegun = 0
    lane: tuple[int, int] | None = None
    open_calls: list[tuple[int, str]] = []
    open_names: defaultdict[str, int] = defaultdict(int)
    for row, is_begin, name, pid, tid, _ in order.iter_rows():
        if lane != (pid, tid):
            lane = (pid, tid)
            open_calls, open_names = [], defaultdict(int)
        if is_begin:
            open_calls.append((row, name))
            open_names[name] += 1
        elif not open_calls or (name and not open_names[name]):
            unbegun += 1
        else:
            begin, begin_event = open_calls.pop()
            open_names[begin_event] -= 1
            while name and begin_event != name:
                begin, begin_event = open_calls.pop()
                open_names[begin_event] -= 1
            begins.append(begin)
            ends.append(row)
    in_file = np.argsort(np.array(begins, dtype=np.int64))
    return Pairs(
        np.array(begins, dtype=np.int64)[in_file],
        np.array(ends, dtype=np.int64)[in_file],
        int(halves["begins"].sum()) - len(begins),
        unbegun,
    )


def calls_of(halves: pl.DataFrame, pairs: Pairs) -> Iterator[list[Any]]:
    """The calls as events of ``TEXT_TIMES``, some thousands at a time, in the order of their beginnings in the file."""
    for first in range(0, len(pairs.begins), _BATCH):
        begins, ends = (halves[rows[first : first + _BATCH]] for rows in (pairs.begins, pairs.ends))
        yield [
            TEXT_TIMES.duration(
                name, category, pid, tid, Raw(ns_text(start)), Raw(ns_text(end - start)), _merge_objects(args, more)
            )
            for name, category, pid, tid, start, args, end, more in zip(
                *(begins[column] for column in ("name", "category", "pid", "tid", "time_ns", "args")),
                *(ends[column] for column in ("time_ns", "args")),
                strict=True,
            )
        ]


def _merge_objects(first: bytes, second: bytes) -> Raw:
    """The members of two JSON objects as one; of a member that both have, the second's is the last one and counts."""
    texts = [text for text in (first.strip(), second.strip()) if text[:1] == b"{" and text[1:-1].strip()]
    if not texts:
        return Raw(b"null")
    return Raw(b"{" + b",".join(text[1:-1] for text in texts) + b"}")
