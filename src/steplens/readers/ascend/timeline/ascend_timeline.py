"""Reads the timelines of Ascend: msprof_*.json (exported by msprof) and trace_view.json (of a result) into raw tables.

msprof knows devices and CANN's calls. A trace_view.json holds the same events behind those of the framework, of which
Level0 leaves out CANN's calls but not the points where they launched. Processes are told apart by their name; a process
id is ``os pid << 10 | layer << 5 | device``, and layers have been renumbered more than once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from steplens.common.errors import InputError
from steplens.formats import trace_view
from steplens.formats.ascend_results import TIME_BASE_KEY
from steplens.formats.kineto import FORWARD_BACKWARD, OPERATOR, PYTHON
from steplens.readers.ascend.timeline.ascend_timeline_device import DeviceEvents, device_tables
from steplens.readers.ascend.timeline.ascend_timeline_events import TimelineColumns
from steplens.readers.ascend.timeline.ascend_timeline_host import host_tables
from steplens.readers.common.microseconds import after_base
from steplens.readers.common.trace_rows import concat_rows, meta_rows
from steplens.trace.health import ERROR, EVERYTHING, INFO, KERNEL_CALLS, KERNEL_DETAILS, WARNING, HealthLog
from steplens.trace.schema import CORE_CPU, NAME

#: names of the process of communication; the second is older
_COMMUNICATION = (trace_view.COMMUNICATION, "HCCL")
#: CANN's calls; older exports have a process per layer
_CALLS = (trace_view.CANN, "AscendCL", "GE", "Model", "Node", "Hccl", "Runtime", "Api", trace_view.OS_RUNTIME)

#: categories of events whose process id is that of the operating system
_FRAMEWORK = (OPERATOR, PYTHON, trace_view.ENQUEUE, trace_view.DEQUEUE)


def read_timeline(
    paths: Sequence[Path], health: HealthLog, *, base_ns: int = 0, device: int | None = None
) -> dict[str, pl.DataFrame]:
    """Read timelines into raw tables; slices of one timeline are given in their order.

    Args:
        paths: JSON arrays of events. A file that cannot be read is a finding, unless none can.
        health: gets what is wrong.
        base_ns: Unix ns that small times count from, where the files do not say it themselves (``base_time_ns``).
        device: device of processes that neither their label nor their id gives one.

    Returns:
        Those of ``ops``, ``python``, ``task_queue``, ``gc``, ``flows``, ``threads``, ``api``, ``kernels``, ``communication``,
        ``counters``, ``marks`` and ``meta`` that have rows. Device tasks carry the point where the runtime launched them
        (``launch_ns``, ``launch_pid``, ``launch_tid``), before any task queue; ``task_type`` is the scheduler's name of a
        task. ``meta`` has pid, device_ids and, if the files say it, base_time_ns.

    Raises:
        InputError: no file can be read.
    """
    columns = TimelineColumns()
    problems = []
    for path in paths:
        try:
            columns.extend(TimelineColumns.read(path))
        except InputError as error:
            problems.append(error)
    if problems and (len(problems) == len(paths) or not columns.count):
        raise problems[0]
    for problem in problems:
        health.add("unreadable_file", ERROR, 1, f"{problem.path.name} {problem.problem}", EVERYTHING)
    _report_damage(columns, health)
    base_ns = base_ns if columns.base_ns is None else columns.base_ns
    timeline = _Timeline(columns, base_ns, device)
    tables = host_tables(timeline.host(), health)
    tables.update(device_tables(timeline.device(), health))
    tables["counters"] = timeline.counters()
    tables["meta"] = timeline.meta()
    timeline.report(health)
    return {name: frame for name, frame in tables.items() if frame.height}


def _report_damage(columns: TimelineColumns, health: HealthLog) -> None:
    health.extend(columns.stopped)
    if columns.truncated:
        message = (
            f"the timeline breaks off inside its events; {columns.count} events were read, {columns.lost_bytes} bytes behind "
            "them were not"
        )
        health.add("truncated_file", ERROR, columns.truncated, message, EVERYTHING)
    if columns.skipped:
        phases = ", ".join(sorted(columns.skipped))
        count = sum(columns.skipped.values())
        health.add("skipped_events", INFO, count, f"events are of kinds that a profile does not use (ph {phases})")


class _Timeline:
    """The events of a timeline by what their process is."""

    def __init__(self, columns: TimelineColumns, base_ns: int, device: int | None) -> None:
        self._columns = columns
        self._base_ns = base_ns
        self._device = device
        self._lanes: dict[str, list[pl.DataFrame]] = {}
        self._unknown: dict[str, int] = {}
        self._unnamed = 0
        self._damaged = columns.damaged
        framework = [part["pid"].drop_nulls().unique() for lane in _FRAMEWORK for part in columns.durations.get(lane, [])]
        self._framework: set[int] = set().union(*framework)
        self.devices: dict[int, int] = {}
        for lane, parts in columns.durations.items():
            if isinstance(lane, str):
                continue
            kind = self._kind(lane, parts)
            if kind in (trace_view.HARDWARE, trace_view.OVERLAP, trace_view.COMMUNICATION):
                self.devices[lane] = self._device_of(lane)
            self._lanes.setdefault(kind, []).extend(parts)
        self._calls = self._own_pids(self._event_frame(self._lanes.get(trace_view.CANN, [])))

    def _kind(self, pid: int, parts: list[pl.DataFrame]) -> str:
        """What a process is: by its name, or, where the file has lost that, by what its events carry."""
        name = self._columns.process_names.get(pid)
        present = {column for part in parts for column in part.columns}
        if name is None:
            self._unnamed += 1
            if "task_type" in present:
                return trace_view.HARDWARE
            if "level" in present:
                return trace_view.CANN
            return trace_view.COMMUNICATION if "alg_type" in present else ""
        if name in _COMMUNICATION:
            return trace_view.COMMUNICATION
        if name in _CALLS:
            return trace_view.CANN
        if name in (trace_view.HARDWARE, trace_view.OVERLAP):
            return name
        if not present & {"event", "event_old"}:
            self._unknown[name] = self._unknown.get(name, 0) + sum(part.height for part in parts)
        return ""

    def _device_of(self, pid: int) -> int:
        """Device of a process: the number in its label, else the one in its id."""
        if number := re.search(r"(\d{1,4})\s*$", self._columns.process_labels.get(pid, "")):
            return int(number[1])
        in_id = pid & trace_view.HOST
        return self._device or 0 if in_id == trace_view.HOST else in_id

    def _os_pid(self, pid: int) -> int:
        """Process of the operating system behind the id of a layer."""
        if pid in self._framework or self._columns.process_names.get(pid) == trace_view.PYTHON_PROCESS:
            return pid
        os_pid = pid >> trace_view.LAYER_BITS
        # inside a container the two sides may count processes differently
        return next(iter(self._framework)) if len(self._framework) == 1 else os_pid

    def _own_pids(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Ids of layers replaced by those of the operating system's processes."""
        if not frame.height:
            return frame
        pids = frame["pid"].drop_nulls().unique().to_list()
        return frame.with_columns(pl.col("pid").replace_strict(pids, list(map(self._os_pid, pids)), return_dtype=pl.Int64))

    def _event_frame(self, parts: list[pl.DataFrame]) -> pl.DataFrame:
        """Events with start_ns and end_ns; those without a time, a length or a thread are no events."""
        frame = self._columns.frame(parts)
        if not frame.height:
            return frame
        timed = frame.with_columns(start_ns=after_base(pl.col("ts_ns"), self._base_ns)).drop("ts_ns").drop_nulls("start_ns")
        if "dur_ns" in frame.columns:
            timed = timed.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns")).drop("dur_ns")
            timed = timed.drop_nulls(["pid", "tid", "end_ns"])
        self._damaged += frame.height - timed.height
        return timed

    def _arrow_ends(self, category: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The starts and the ends of arrows."""
        starts, ends = (ends_of.get(category, []) for ends_of in (self._columns.starts, self._columns.ends))
        return self._event_frame(starts), self._event_frame(ends)

    def host(self) -> dict[str, pl.DataFrame]:
        """Events of the framework and of CANN's calls, by category; process ids are those of the operating system."""
        frames = {category: self._event_frame(self._columns.durations.get(category, [])) for category in trace_view.CATEGORIES}
        frames["calls"] = self._calls
        frames["others"] = self._own_pids(self._event_frame(self._lanes.get("", [])))
        frames["forward"], frames["backward"] = self._arrow_ends(FORWARD_BACKWARD)
        host = (trace_view.PYTHON_PROCESS, *_CALLS)
        processes = self._columns.process_names
        names = [(*thread, name) for thread, name in self._columns.thread_names.items() if processes.get(thread[0]) in host]
        threads = pl.DataFrame(names, schema={"pid": pl.Int64, "tid": pl.Int64, "name": pl.String}, orient="row")
        frames["threads"] = self._own_pids(threads).unique(["pid", "tid"], maintain_order=True).sort("pid", "tid")
        return frames

    def device(self) -> DeviceEvents:
        """Events of the devices, and the arrows that end there."""
        lanes = {key: name for key, name in self._columns.thread_names.items() if key[0] in self.devices}
        groups = {key: name for key, name in lanes.items() if trace_view.GROUP_PREFIX.strip() in name}
        numbered = {key: re.fullmatch(rf"{trace_view.PLANE_PREFIX}(\d{{1,9}})", name) for key, name in lanes.items()}
        planes = {key: int(number[1]) for key, number in numbered.items() if number}
        starts, ends = self._arrow_ends(trace_view.HOST_TO_DEVICE)
        return DeviceEvents(
            hardware=self._on_device(trace_view.HARDWARE),
            communication=self._on_device(trace_view.COMMUNICATION),
            overlap=self._on_device(trace_view.OVERLAP),
            groups=groups,
            planes=planes,
            # the calls' process may have been pruned and have lost its name
            launches=((self._own_pids(starts), ends), self._arrow_ends(trace_view.OPERATOR_TO_DEVICE)),
            calls=self._calls,
            on_cpu=any(self._columns.process_labels.get(pid, "").startswith(CORE_CPU) for pid in self.devices),
        )

    def _on_device(self, kind: str) -> pl.DataFrame:
        frame = self._event_frame(self._lanes.get(kind, []))
        if not frame.height:
            return frame
        device = pl.col("pid").replace_strict(list(self.devices), list(self.devices.values()), return_dtype=pl.Int32)
        return frame.with_columns(device=device)

    def counters(self) -> pl.DataFrame:
        """Samples of counters as rows of ``counters``; the group is the name of the process."""
        groups = []
        for pid, parts in self._columns.counters.items():
            frame = self._event_frame(parts)
            if not frame.height:
                continue
            member = pl.col("member").cast(pl.String)
            # "Read(MB/s)" names value and unit; a bare "KB" is a unit; a repeated name says nothing
            unit = (
                pl.when(member == pl.col("name").cast(pl.String))
                .then(pl.lit("value"))
                .otherwise(pl.coalesce(member.str.extract(r"\(([^()]+)\)$"), member))
            )
            groups.append(
                frame.drop_nulls("value").select(
                    group=pl.lit(self._columns.process_names.get(pid, "")).cast(NAME),
                    name="name",
                    unit=unit.cast(NAME),
                    time_ns="start_ns",
                    value="value",
                    device=pl.lit(self._device_of(pid), dtype=pl.Int32),
                )
            )
        return concat_rows(*groups)

    def meta(self) -> pl.DataFrame:
        """What the timeline says about the run."""
        values: dict[str, object] = {}
        pids = [*sorted(self._framework), *(pid >> trace_view.LAYER_BITS for pid in self.devices)]
        if pids:
            values["pid"] = pids[0]
        if self.devices:
            values["device_ids"] = sorted(set(self.devices.values()))
        if self._columns.base_ns is not None:
            values[TIME_BASE_KEY] = self._columns.base_ns
        return meta_rows(values)

    def report(self, health: HealthLog) -> None:
        """Report events that could not be used, once all tables are made."""
        if self._damaged:
            message = "events are no valid JSON, or have no time, length or thread, and were left out"
            health.add("damaged_events", ERROR, self._damaged, message, EVERYTHING)
        if self._unknown:
            names = ", ".join(sorted(self._unknown)[:8])
            health.add("skipped_events", INFO, sum(self._unknown.values()), f"events of other processes are not used ({names})")
        if self._unnamed:
            message = "processes have lost their name; what they are was concluded from their events"
            health.add("unnamed_processes", WARNING, self._unnamed, message, (KERNEL_CALLS, KERNEL_DETAILS))
