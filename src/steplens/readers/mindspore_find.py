"""What a folder holds of MindSpore: recorded windows, raw device logs, ``PROF_*`` per iteration, a flat ``profiler/`` directory.

Every rank (of raw logs: every device) is a source of its own, since all ranks of a host may share one folder. What was
recorded wins over what was computed from it; a flat directory completes the ``PROF_*`` of the same rank.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from steplens import rundir
from steplens.readers import legacy_device, mindspore_flat, mindspore_host, mindspore_prof, mindspore_windows
from steplens.readers.legacy_files import find_logs
from steplens.readers.mindspore_folder import HOST_INFO, open_folder
from steplens.trace.build import conform
from steplens.trace.health import HealthLog
from steplens.trace.trace import Trace

WINDOWS = "windows"
LEGACY = "legacy"
PROF = "prof"
FLAT = "flat"

#: names that make a closer look worth its time; most folders of a disk have none
_PROMISING = re.compile(
    r"^(?:PROF_\d|FRAMEWORK$|data$|container$|host_info$|training_trace\.|hwts\.|ts_track\.|Framework\.host|DATA_PREPROCESS\.)"
    r"|_\d{1,9}(?:_detail_time|_detail|_type)?\.(?:csv|json|txt|pb)$|^step_trace_point_info\.json$"
)
#: tables of a flat directory that a PROF directory does not have
_COMPLETING = ("pipeline_ops", "pipeline_samples", "pipeline_batches", "source_tables", "allocations")


@dataclass(frozen=True)
class MindSporeSource:
    """The data of one rank or device.

    Attributes:
        path: the folder that holds it.
        kind: ``WINDOWS``, ``LEGACY``, ``PROF`` or ``FLAT``.
        number: rank; of raw device logs the device.
        prof: the ``PROF_*`` directory of kind ``PROF``.
        completed: whether a flat directory has files of the same rank.
    """

    path: Path
    kind: str
    number: int
    prof: Path | None = None
    completed: bool = False

    @property
    def reason(self) -> str:
        """Why it is read this way, in one sentence."""
        return {
            WINDOWS: f"its raw data of rank {self.number} is there",
            LEGACY: f"it holds raw logs of device {self.number}",
            PROF: f"it holds device data of rank {self.number}, one file per iteration",
            FLAT: f"it holds results of rank {self.number} of MindSpore's profiler",
        }[self.kind]

    def sources(self) -> list[Path]:
        """The files whose change makes a cached trace stale."""
        if self.kind == WINDOWS:
            return mindspore_windows.sources(self.path, self.number)
        if self.kind == LEGACY:
            return legacy_device.sources(self.path, self.number)
        flat = mindspore_flat.sources(self.path, self.number) if self.kind == FLAT or self.completed else []
        host = [file for file in (self.host_file,) if file is not None and file not in flat]
        return [*(mindspore_prof.sources(self.prof) if self.prof is not None else []), *flat, *host]

    def read(self) -> Trace:
        """Its trace.

        Raises:
            InputError: nothing in it can be read.
        """
        if self.kind == WINDOWS:
            return mindspore_windows.read_trace(self.path, self.number)
        if self.kind == LEGACY:
            return legacy_device.read_trace(self.path, self.number)
        if self.prof is None:
            return mindspore_flat.read_trace(self.path, self.number)
        trace = mindspore_prof.read_trace(self.prof)
        if self.completed:
            trace = _together(trace, mindspore_flat.read_trace(self.path, self.number, host=False))
        return trace if (file := self.host_file) is None else _with_host(trace, file)

    @property
    def host_file(self) -> Path | None:
        """Its records of the host; None where there are none, or what it holds is recorded by steplens or by a device alone."""
        if self.kind not in (PROF, FLAT):
            return None
        folder = open_folder(self.path)
        return folder.file(HOST_INFO, self.number) if self.number in folder.host_ranks else None


def find(path: Path) -> list[MindSporeSource]:
    """Every source of MindSpore in a folder itself, by rank; none where it holds something else."""
    if path.name == rundir.OUTPUT_DIRECTORY or not _is_promising(path):
        return []
    if path.name == HOST_INFO and open_folder(path).host_ranks:
        # a part of the folder above
        path = path.parent
    if windows := mindspore_windows.ranks(path):
        return [MindSporeSource(path, WINDOWS, rank) for rank in windows]
    if logs := find_logs(path).devices:
        return [MindSporeSource(path, LEGACY, device) for device in logs]
    flat = open_folder(path)
    found: dict[int, MindSporeSource] = {}
    for folder in mindspore_prof.find(path):
        rank = mindspore_prof.rank_of(folder)
        # of several captures of one rank the last one counts: their results would share names
        found[rank] = MindSporeSource(path, PROF, rank, folder, rank in flat.result_ranks)
    for rank in flat.ranks:
        found.setdefault(rank, MindSporeSource(path, FLAT, rank))
    return [found[rank] for rank in sorted(found)]


def _is_promising(path: Path) -> bool:
    try:
        with os.scandir(path) as entries:
            return bool(_PROMISING.search(path.name)) or any(_PROMISING.search(entry.name) for entry in entries)
    except OSError:
        return False


def _together(device: Trace, flat: Trace) -> Trace:
    """The tables of a ``PROF_*`` directory and, of a flat directory, those of the data pipeline, of memory and of operators."""
    tables = {name: frame for name in device if (frame := device.table(name)) is not None}
    for name in _COMPLETING:
        if name not in tables and (frame := flat.table(name)) is not None:
            tables[name] = frame
    for name in ("meta", "health"):
        # what the device's own data says stands first, and of two values of a key it counts
        frames = [frame for trace in (device, flat) if (frame := trace.table(name)) is not None]
        if frames:
            tables[name] = pl.concat(frames).unique(["key"] if name == "meta" else None, keep="first", maintain_order=True)
    return Trace(device.source, tables)


def _with_host(trace: Trace, file: Path) -> Trace:
    """A trace with what the host did, where both are on one clock."""
    health = HealthLog()
    tables = {name: frame for name in trace if (frame := trace.table(name)) is not None}
    records = mindspore_host.read(file, health)
    added = {
        name: conform(name, frame) for name, frame in mindspore_host.beside(records.tables(), tables, file.name, health).items()
    }
    if health.findings:
        added["health"] = health.frame()
    for name, frame in added.items():
        tables[name] = pl.concat([tables[name], frame]) if name in tables else frame
    return Trace(trace.source, tables)
