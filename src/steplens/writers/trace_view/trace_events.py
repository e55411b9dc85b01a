"""The events of a Chrome trace, as the layers of trace_view.json write them: rows of text cells, never an object per event.

Every event but the first starts with a comma, so that layers can be written one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import IO, Any

import polars as pl

from steplens.formats.trace_view import DEVICE_BITS, LAYER_BITS, PLACES
from steplens.trace.trace import Trace
from steplens.writers.common.json_events import process_metadata, write_calls
from steplens.writers.common.output import Output
from steplens.writers.common.rows import Cell, Member, Shared, shared_texts, write_rows
from steplens.writers.common.text import json_string, lay_out_list, microseconds
from steplens.writers.trace_view.trace_parts import ARROWS_OF_PART, Part


@dataclass(frozen=True)
class View:
    """One trace_view being written.

    Attributes:
        output: what is written.
        handle: open binary file.
        pid: the recorded process.
        part: which of the traces of the file this is.
    """

    output: Output
    handle: IO[bytes]
    pid: int
    part: Part = field(default_factory=Part)

    @property
    def trace(self) -> Trace:
        """The tables of the rank."""
        return self.output.trace

    def ts(self, column: str) -> pl.Expr:
        """A column of times as µs after the time base."""
        return microseconds(pl.col(column) - self.output.base_ns)

    def calls(self, frame: pl.DataFrame, head: Cell, pid: Cell, tid: Cell, *arguments: Member) -> None:
        """One complete event per row of ``frame``; see ``json_events.write_calls``."""
        write_calls(self.handle, frame, self.output.base_ns, head, pid, tid, *arguments)

    def metadata(self, events: Iterable[dict[str, Any]]) -> None:
        """Names and order of processes and threads."""
        for event in events:
            self.handle.write(b", " + json.dumps(self.part.told(event), ensure_ascii=False).encode())

    def device_pid(self, place: int, device: int) -> int:
        """Id of the process that stands for a layer of one device: (recorded process, place of the layer, device)."""
        return self.pid << LAYER_BITS | place << DEVICE_BITS | device

    def layer(self, name: str, device: int, label: str) -> int:
        """Name the process that stands for a layer of one device, and return its id."""
        pid = self.device_pid(PLACES[name], device)
        self.metadata(process_metadata(pid, name, label, PLACES[name]))
        return pid

    def pids(self, layer: str) -> pl.Expr:
        """Ids of the processes of a layer, by the column ``device``."""
        return pl.lit(self.device_pid(PLACES[layer], 0)) + pl.col("device").fill_null(0).cast(pl.Int64)


def event_head(names: pl.Series, category: str = "") -> Shared:
    """Start of a complete event up to its pid; one text per distinct name."""
    middle = f',"cat":"{category}","pid":' if category else ',"pid":'
    start = ', {"ph":"X","name":'
    return shared_texts(names, lambda name: start + json_string(name) + middle, f'{start}""{middle}')


def list_argument(key: str, values: pl.Series) -> Shared | str:
    """`,"key":"..."` for rows that know the value, nothing for the others."""
    if values.null_count() == len(values):
        return ""
    return shared_texts(values, lambda text: f',"{key}":{json_string(lay_out_list(text))}' if text else "", "")


def write_arrows(view: View, pairs: pl.DataFrame, name: str, category: str) -> None:
    """Both ends of every arrow, in one row: id, from pid/from_tid/from_ns, to to_pid/to_tid/start_ns."""
    fixed = f'"bp":"e","name":"{name}","cat":"{category}","id":'
    number = pl.col("id").cast(pl.Int64) + view.part.number * ARROWS_OF_PART
    begin = ("pid", pl.col("pid")), ("tid", pl.col("from_tid")), ("ts", view.ts("from_ns"))
    end = ("pid", pl.col("to_pid")), ("tid", pl.col("to_tid")), ("ts", view.ts("start_ns"))
    first, second = f', {{"ph":"s",{fixed}', f'}}, {{"ph":"f",{fixed}'
    write_rows(view.handle, pairs, first, number, *begin, second, number, *end, "}")
