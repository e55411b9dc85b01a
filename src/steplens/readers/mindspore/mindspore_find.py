"""What a folder holds of MindSpore: recorded windows, raw device logs, ``PROF_*`` per iteration, a flat ``profiler/`` directory.

Every rank (of raw logs: every device) is a source of its own, since all ranks of a host may share one folder. What was
recorded wins over what was computed from it; a flat directory completes the ``PROF_*`` of the same rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from steplens.common import rundir
from steplens.common.errors import InputError
from steplens.common.listings import list_folder
from steplens.readers.ascend.database import ascend_db, database_files
from steplens.readers.ascend.text import ascend_text, text_files
from steplens.readers.common.side_files import read_json
from steplens.readers.contents import contents_of
from steplens.readers.mindspore import mindspore_host
from steplens.readers.mindspore.device_logs import legacy_device
from steplens.readers.mindspore.folders import is_promising, list_children
from steplens.readers.mindspore.legacy_files import LOG_FOLDERS, MADE_FROM_LOGS, find_logs
from steplens.readers.mindspore.mindspore_folder import HOST_INFO, open_folder
from steplens.readers.mindspore.results import mindspore_flat, mindspore_prof
from steplens.readers.mindspore.windows import mindspore_windows
from steplens.trace.building.build import conform_to_schema
from steplens.trace.health import CALL_STACKS, WARNING, HealthLog
from steplens.trace.trace import Trace

WINDOWS = "windows"
LEGACY = "legacy"
PROF = "prof"
FLAT = "flat"

#: what each kind is called in front of users
FORMATS = {WINDOWS: "MindSpore run", LEGACY: "MindSpore device logs", PROF: "MindSpore device data", FLAT: "MindSpore results"}

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
    def format(self) -> str:
        """What it is called in front of users."""
        return FORMATS[self.kind]

    @property
    def reason(self) -> str:
        """Why it is read this way, in one sentence."""
        return {
            WINDOWS: f"its raw data of rank {self.number} is there",
            LEGACY: f"it holds raw logs of device {self.number}",
            PROF: f"it holds device data of rank {self.number}, one file per iteration",
            FLAT: f"it holds results of rank {self.number} of MindSpore's profiler",
        }[self.kind]

    @property
    def claimed(self) -> frozenset[str]:
        """Names in its folder that are parts of it: of the folders of a rank that it was computed from as well."""
        parts = {file.relative_to(self.path).parts[0] for file in self.sources() if self.path in file.parents}
        if self.kind == WINDOWS:
            parts |= {mindspore_windows.RAW_DIRECTORY, rundir.OUTPUT_DIRECTORY}
        if self.kind == LEGACY:
            parts |= set(LOG_FOLDERS)
        if self.prof is not None:
            parts.add(self.prof.name)
            if self.prof == self.path:
                parts |= list_folder(self.path).entry_names
        return frozenset(parts | {file.name for file in [*self._result_files(), *self._result_directories()]})

    @property
    def ignored(self) -> tuple[str, ...]:
        """Results in its folder that were made from it, and are not read."""
        read = set(self.sources())
        names = [file.name for file in self._result_files() if file not in read]
        counted = (f"{len(names)} result files of MindSpore's profiler",) if names else ()
        return (*counted, *(folder.name for folder in self._result_directories()))

    def _result_files(self) -> list[Path]:
        """Files of its rank that a flat directory of results has."""
        return open_folder(self.path).of_rank(self.number)

    def _result_directories(self) -> list[Path]:
        """Directories of results that steplens made from it: of raw logs the flat files, else a run directory beside those."""
        if self.kind == LEGACY:
            folder = self.path / rundir.PROFILER_DIRECTORY
            made = _made_of_logs(folder)
            return [folder] if self.number in made and made.issuperset(open_folder(folder).result_ranks) else []
        folders = [
            folder
            for folder in list_children(self.path)
            if folder.name.startswith(f"rank-{self.number}_")
            and folder.name.endswith(rundir.MINDSPORE_RUN_SUFFIX)
            and contents_of(folder).own
        ]
        return [] if self.prof == self.path else folders

    def recorded(self) -> list[Path]:
        """The files of recorded data that results are made from; none where it is somebody's results itself."""
        if self.kind == WINDOWS:
            return mindspore_windows.sources(self.path, self.number)
        return legacy_device.sources(self.path, self.number) if self.kind == LEGACY else []

    def sources(self) -> list[Path]:
        """The files whose change makes a cached trace stale: where windows hold nothing, the results beside them are read."""
        if self.kind == WINDOWS:
            return [*self.recorded(), *self._result_files(), *self._output_files()]
        if self.kind == LEGACY:
            return self.recorded()
        flat = mindspore_flat.sources(self.path, self.number) if self.kind == FLAT or self.completed else []
        host = [file for file in (self.host_file,) if file is not None and file not in flat]
        return [*(mindspore_prof.sources(self.prof) if self.prof is not None else []), *flat, *host]

    def read(self) -> Trace:
        """Its trace.

        Raises:
            InputError: nothing in it can be read.
        """
        if self.kind == WINDOWS:
            try:
                return mindspore_windows.read_trace(self.path, self.number)
            except InputError as error:
                finished = self._read_finished_results()
                if finished is None:
                    raise
                return _with_unread_windows(finished, error)
        if self.kind == LEGACY:
            return legacy_device.read_trace(self.path, self.number)
        if self.prof is None:
            return _with_python(mindspore_flat.read_trace(self.path, self.number), self._result_directories())
        trace = mindspore_prof.read_trace(self.prof)
        if self.completed:
            trace = _combine_traces(trace, mindspore_flat.read_trace(self.path, self.number, host=False))
        return trace if (file := self.host_file) is None else _with_host(trace, file)

    @property
    def has_finished_results(self) -> bool:
        """Whether results lie beside recorded windows, and are read where these give nothing."""
        return self.kind == WINDOWS and (self.number in open_folder(self.path).result_ranks or self._output() is not None)

    def _read_finished_results(self) -> Trace | None:
        """The finished results beside recorded windows; None where there are none."""
        if self.number in open_folder(self.path).result_ranks:
            return _with_python(mindspore_flat.read_trace(self.path, self.number), self._result_directories())
        output = self._output()
        if output is None:
            return None
        read = ascend_text.read_trace if text_files.detect(output) else ascend_db.read_trace
        return read(output, self.path)

    def _output(self) -> Path | None:
        """The result folder of a run directory, as MindSpore writes it since 2.5; it is of one rank."""
        there = contents_of(self.path)
        is_result = there.output is not None and there.output != self.path and bool(there.text or there.databases)
        return there.output if is_result and mindspore_windows.ranks(self.path) == [self.number] else None

    def _output_files(self) -> list[Path]:
        output = self._output()
        if output is None:
            return []
        sources = text_files.sources if text_files.detect(output) else database_files.sources
        return sources(output, self.path)

    @property
    def host_file(self) -> Path | None:
        """Its records of the host; None where there are none, or what it holds is recorded by steplens or by a device alone."""
        if self.kind not in (PROF, FLAT):
            return None
        folder = open_folder(self.path)
        return folder.file(HOST_INFO, self.number) if self.number in folder.host_ranks else None


def find_sources(path: Path) -> list[MindSporeSource]:
    """Every source of MindSpore in a folder itself, by rank; none where it holds something else."""
    if path.name == rundir.OUTPUT_DIRECTORY or not is_promising(path):
        return []
    if path.name == HOST_INFO and open_folder(path).host_ranks:
        # a part of the folder above
        path = path.parent
    flat = open_folder(path)
    source_of_rank = {rank: MindSporeSource(path, WINDOWS, rank) for rank in mindspore_windows.ranks(path)}
    for device in find_logs(path).devices:
        source_of_rank.setdefault(device, MindSporeSource(path, LEGACY, device))
    earlier = []
    for folder in mindspore_prof.find_prof_directories(path):
        rank = mindspore_prof.rank_of(folder)
        before = source_of_rank.get(rank)
        if before is not None:
            # of several captures of one rank the last one goes with the results beside them; the others are opened alone
            alone = before.prof or folder
            earlier.append(MindSporeSource(alone, PROF, rank, alone))
        if before is None or before.prof is not None:
            source_of_rank[rank] = MindSporeSource(path, PROF, rank, folder, rank in flat.result_ranks)
    for rank in flat.ranks:
        source_of_rank.setdefault(rank, MindSporeSource(path, FLAT, rank))
    return [*(source_of_rank[rank] for rank in sorted(source_of_rank)), *earlier]


def _tables_of(trace: Trace) -> dict[str, pl.DataFrame]:
    return {name: frame for name in trace if (frame := trace.table(name)) is not None}


def _with_finding(trace: Trace, check: str, message: str, unsafe: str = "") -> Trace:
    log = HealthLog()
    log.add(check, WARNING, 1, message, unsafe)
    tables = _tables_of(trace)
    tables["health"] = pl.concat([trace.required("health").collect(), log.frame()])
    return Trace(trace.source, tables)


def _with_unread_windows(results: Trace, error: InputError) -> Trace:
    """Finished results, read because the windows beside them, which were recorded later, hold nothing."""
    message = f"the recorded windows give nothing ({error.problem}); the finished results beside them were read"
    return _with_finding(results, "window_lost", message)


def _with_python(flat: Trace, runs: list[Path]) -> Trace:
    """The results of a recording with stacks, with the calls of Python, which the timeline of its run directory keeps."""
    options = flat.meta_value("profiling_options")
    outputs = [run / rundir.OUTPUT_DIRECTORY for run in runs]
    if not (isinstance(options, dict) and options.get("with_stack") is True and outputs and text_files.detect(outputs[-1])):
        return flat
    try:
        python_frames = ascend_text.read_trace(outputs[-1], runs[-1]).table("python")
    except InputError as error:
        message = f"the calls of Python cannot be read ({error.problem})"
        return _with_finding(flat, "missing_python_calls", message, CALL_STACKS)
    return flat if python_frames is None else Trace(flat.source, {**_tables_of(flat), "python": python_frames})


def _made_of_logs(folder: Path) -> set[int]:
    """The devices whose results in a folder were made from the raw logs beside it."""
    files = open_folder(folder).files if folder.is_dir() and not folder.is_symlink() else {}
    infos = [(rank, file) for (family, rank), file in files.items() if family == "profiler_info"]
    return {rank for rank, file in infos if read_json(file).get("source") == MADE_FROM_LOGS}


def _combine_traces(device: Trace, flat: Trace) -> Trace:
    """The tables of a ``PROF_*`` directory and, of a flat directory, those of the data pipeline, of memory and of operators."""
    tables = _tables_of(device)
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
    tables = _tables_of(trace)
    records = mindspore_host.read_host_records(file, health)
    added = {
        name: conform_to_schema(name, frame)
        for name, frame in mindspore_host.tables_on_same_clock(records.tables(), tables, file.name, health).items()
    }
    if health.findings:
        added["health"] = health.frame()
    for name, frame in added.items():
        tables[name] = pl.concat([tables[name], frame]) if name in tables else frame
    return Trace(trace.source, tables)
