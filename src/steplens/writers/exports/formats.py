"""What a trace can be exported to: the visible list of formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from steplens.common import extensions, rundir
from steplens.formats.ascend_results import TIME_BASE_KEY
from steplens.readers.common.run_info import read_metadata
from steplens.writers.common.output import Output, time_base_ns
from steplens.writers.exports import result, tables
from steplens.writers.exports.flame import pprof, speedscope, stacks
from steplens.writers.exports.kineto import kineto
from steplens.writers.exports.memory_timeline import memory_timeline
from steplens.writers.exports.subject import Subject
from steplens.writers.trace_view import trace_view


@dataclass(frozen=True)
class Choices:
    """What some formats let choose.

    Attributes:
        metric: of "stacks", see ``stacks.METRICS``.
        device: of "memory", such as "cuda:0"; None is the accelerator that was used most, or else the CPU.
        on_note: called with what the user should know about what was written, one sentence each.
    """

    metric: str = stacks.SELF_CPU
    device: str | None = None
    on_note: Callable[[str], None] = lambda note: None


@dataclass(frozen=True)
class Format:
    """One format. Installed packages add theirs behind the entry point group ``steplens.writers``.

    Attributes:
        name: what it is asked for by.
        suffix: end of the names of its files or folders.
        what: one line about it: what reads it.
        write: writes a trace to an open file, for formats of one file. The name of the file may decide its form.
        write_folder: writes a trace into an empty folder, for the others.
        is_run: whether the folder is a run directory, which tools know by the end of its name.
        compressed: whether its files are compressed whatever they are called.
    """

    name: str
    suffix: str
    what: str
    write: Callable[[Subject, str, IO[bytes], Choices], None] | None = None
    write_folder: Callable[[Subject, Path], None] | None = None
    is_run: bool = False
    compressed: bool = False


def _write_chrome(subject: Subject, name: str, handle: IO[bytes], choices: Choices) -> None:
    # the file that an analysis writes, to the byte
    trace_view.write_events(Output(subject.trace, chrome_base_ns(subject), result.recorded_level(subject.trace)), handle)


def chrome_base_ns(subject: Subject) -> int:
    """What the times of a timeline are counted from: the time base that the run keeps for all of its files, Unix ns."""
    recorded = read_metadata(subject.path) if subject.path.is_dir() else {}
    return time_base_ns(subject.trace, recorded.get(TIME_BASE_KEY))


def _write_memory(subject: Subject, name: str, handle: IO[bytes], choices: Choices) -> None:
    memory = memory_timeline.memory_of(subject, choices.device)
    if not memory.categorised:
        choices.on_note(memory_timeline.NO_CATEGORIES)
    memory_timeline.write(memory, name, handle)


def _write_stacks(subject: Subject, name: str, handle: IO[bytes], choices: Choices) -> None:
    stacks.write(subject, handle, choices.metric)


def _without_choices(write: Callable[[Subject, IO[bytes]], None]) -> Callable[[Subject, str, IO[bytes], Choices], None]:
    """A writer of files that have one form and nothing to choose."""
    return lambda subject, name, handle, choices: write(subject, handle)


def _run_format(name: str, content: str) -> Format:
    what = f"a run directory with {content}, for msprof-analyze and MindStudio Insight"
    write = partial(result.write, export_type=name)
    return Format(name, rundir.RUN_SUFFIX, what, write_folder=write, is_run=True)


_KINETO = "the form of PyTorch's own traces, for HolisticTraceAnalysis and Perfetto"
_CHROME = "an array of trace events, for Perfetto and MindStudio Insight"
_PARQUET = "a folder with a Parquet file per table, for polars, pandas, DuckDB"
_SPEEDSCOPE = "calls over time, or sampled stacks, for https://www.speedscope.app"
_PPROF = "own time of every call stack, for `pprof -http :8080`"
_STACKS = "a line per call stack, for flamegraph.pl and speedscope"
_MEMORY = "memory by category over time: a page, points (.json) or events (.raw.json.gz)"

FORMATS = {
    item.name: item
    for item in (
        Format("kineto", ".kineto.json.gz", _KINETO, _without_choices(kineto.write)),
        Format("chrome", ".trace_view.json.gz", _CHROME, _write_chrome),
        _run_format("db", "databases"),
        _run_format("text", "text files"),
        Format("parquet", ".parquet", _PARQUET, write_folder=tables.write),
        Format("speedscope", ".speedscope.json", _SPEEDSCOPE, _without_choices(speedscope.write)),
        Format("pprof", ".pb.gz", _PPROF, _without_choices(pprof.write), compressed=True),
        Format("stacks", ".stacks.log", _STACKS, _write_stacks),
        Format("memory", ".memory.html", _MEMORY, _write_memory),
    )
}


def all_formats() -> dict[str, Format]:
    """The formats of steplens and, behind them, those of installed packages, by name; a name of steplens stays its own."""
    installed: tuple[Format, ...] = extensions.load_extensions(extensions.WRITERS, Format)
    return {**FORMATS, **{item.name: item for item in installed if item.name not in FORMATS}}
