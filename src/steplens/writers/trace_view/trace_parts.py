"""Several traces in one array of trace events: what keeps their processes, arrows and places apart.

A viewer knows a process by its id alone and joins the ends of an arrow by category and id, across the whole file. Processes of
two machines or containers share ids, and every trace counts its arrows from 1 on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from steplens.formats.trace_view import LAYER_BITS
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Trace

#: places of the processes of one trace, more than ``LAST_PLACE``
_PLACES = 64
#: arrows of one trace, whose numbers lie apart from those of the others; more rows than that no table has
ARROWS_OF_PART = 1 << 32
#: processes of counters without a layer of one trace
COUNTERS_OF_PART = 1 << 20

_PID_COLUMNS = ("pid", "from_pid", "to_pid")


@dataclass(frozen=True)
class Part:
    """Which of the traces of a file is being written.

    Attributes:
        number: from 0 on, in the order in which viewers show them.
        name: of the trace, told in front of the names of its processes; empty where it has the file for itself.
        recorded: id of a process in the file -> its recorded id, where that was taken.
    """

    number: int = 0
    name: str = ""
    recorded: Mapping[int, int] = field(default_factory=dict)

    def told(self, event: dict[str, Any]) -> dict[str, Any]:
        """A metadata event of one of its processes with the name, the label and the place that tell the trace."""
        args = event["args"]
        if not self.name:
            return event
        if event["name"] == "process_name":
            args = {"name": f"{self.name}: {args['name']}"}
        elif event["name"] == "process_labels" and event["pid"] in self.recorded:
            args = {"labels": f"{args['labels']}, recorded as process {self.recorded[event['pid']]}"}
        elif event["name"] == "process_sort_index":
            args = {"sort_index": args["sort_index"] + self.number * _PLACES}
        return {**event, "args": args}


class ProcessIds:
    """The ids of processes that a file holds so far; a recorded id that is free stays as it is."""

    def __init__(self) -> None:
        self._pids: set[int] = set()
        self._main: set[int] = set()
        #: main processes that would have a recorded one among the ids of their layers
        self._above: set[int] = set()
        self._next = 1

    def take(self, trace: Trace, main: int) -> tuple[Trace, int, dict[int, int]]:
        """Let a trace into the file.

        Args:
            trace: its tables.
            main: id of its main process, from which those of its layers are made.

        Returns:
            the trace with the ids that its processes get, the one of its main process, and id -> recorded id of those that
            got another one.
        """
        recorded = _process_ids(trace) | {main}
        # within one trace ids stay as far apart as in a file of its own, so only those of the traces before count
        pid_of = {pid: pid for pid in recorded if self._free(pid, pid == main)}
        own_pids = set(pid_of.values())
        if main not in pid_of:
            upper_parts = {pid >> LAYER_BITS for pid in own_pids}
            pid_of[main] = self._next_free_id(own_pids, lambda pid: pid not in upper_parts and self._free(pid, True))
        for pid in recorded - set(pid_of):
            pid_of[pid] = self._next_free_id(own_pids, lambda pid: pid >> LAYER_BITS != pid_of[main] and self._free(pid, False))
        self._pids.update(pid_of.values())
        self._above.update(pid >> LAYER_BITS for pid in pid_of.values())
        self._main.add(pid_of[main])
        moved = {pid: new for pid, new in pid_of.items() if pid != new}
        return _renumber_processes(trace, moved), pid_of[main], {new: pid for pid, new in moved.items()}

    def _free(self, pid: int, is_main: bool) -> bool:
        if pid in self._pids or pid >> LAYER_BITS in self._main:
            return False
        return not is_main or pid not in self._above

    def _next_free_id(self, own: set[int], is_free: Callable[[int], bool]) -> int:
        """The next free id that the trace itself does not have either, which has it from now on."""
        while self._next in own or not is_free(self._next):
            self._next += 1
        own.add(self._next)
        return self._next


def _process_ids(trace: Trace) -> set[int]:
    """Ids of all processes of a trace."""
    pids: set[int] = set()
    for name in trace:
        for column in _PID_COLUMNS:
            if column in SCHEMA[name]:
                pids |= set(trace.required(name).select(pl.col(column).drop_nulls().unique()).collect()[column])
    return pids


def _renumber_processes(trace: Trace, moved: Mapping[int, int]) -> Trace:
    """A trace of its own, whose tables go with it; with other ids of processes."""
    tables: dict[str, pl.LazyFrame] = {}
    for name in trace:
        columns = [pl.col(column).replace(dict(moved)) for column in _PID_COLUMNS if moved and column in SCHEMA[name]]
        tables[name] = trace.required(name).with_columns(columns)
    return Trace(trace.source, tables)
