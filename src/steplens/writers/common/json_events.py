"""Events of Chrome traces and of Kineto's, written from columns: rows of text cells, no Python object per event."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any

import polars as pl

from steplens.writers.common.rows import Cell, Member, write_rows
from steplens.writers.common.text import json_string, microseconds, render_distinct


def write_calls(
    handle: IO[bytes], frame: pl.DataFrame, base_ns: int, head: Cell, pid: Cell, tid: Cell, *arguments: Member
) -> None:
    """One complete event per row of ``frame``.

    Args:
        handle: open binary file.
        frame: has start_ns and end_ns.
        base_ns: Unix ns that ``ts`` counts from.
        head: what stands in front of the process id.
        pid: process id.
        tid: thread id, or lane.
        arguments: members of ``args``; a first one that is a cell begins with ``,"args":{``.
    """
    if arguments and isinstance(arguments[0], tuple):
        key, value = arguments[0]
        arguments = (f',"args":{{"{key}":', value, *arguments[1:])
    ts, duration = microseconds(pl.col("start_ns") - base_ns), microseconds(pl.col("end_ns") - pl.col("start_ns"))
    end = "}}" if arguments else "}"
    write_rows(handle, frame, head, pid, ("tid", tid), ("ts", ts), ("dur", duration), *arguments, end)


def metadata_event(kind: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    """One metadata event."""
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


def process_metadata(pid: int, name: str, label: str, sort: int) -> list[dict[str, Any]]:
    """Name, label and place of a process."""
    return [
        metadata_event("process_name", pid, 0, name=name),
        metadata_event("process_labels", pid, 0, labels=label),
        metadata_event("process_sort_index", pid, 0, sort_index=sort),
    ]


def thread_metadata(pid: int, tid: int, name: str, sort: int | None = None) -> list[dict[str, Any]]:
    """Name and place of a lane; without ``sort`` its id is its place."""
    return [
        metadata_event("thread_name", pid, tid, name=name),
        metadata_event("thread_sort_index", pid, tid, sort_index=tid if sort is None else sort),
    ]


def number_member(key: str, column: str, frame: pl.DataFrame) -> pl.Expr | str:
    """``,"key":value`` for the rows that know the value of a column of integers, nothing for the others."""
    if frame[column].null_count() == frame.height:
        return ""
    return pl.format(f",{json_string(key)}:{{}}", column).fill_null("")


def text_member(key: str, values: pl.Series, render: Callable[[str], str | None] = json_string) -> pl.Series | str:
    """``,"key":value`` for the rows that have the value, nothing for the others."""
    if values.null_count() == len(values):
        return ""

    def render_member(text: str) -> str | None:
        value = render(text)
        return None if value is None else f",{json_string(key)}:{value}"

    return render_distinct(values, render_member, "")
