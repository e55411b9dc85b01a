"""Exports traces to the formats of other tools; what ``steplens export`` and ``steplens.export`` do."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

from steplens.common.errors import DefectError, InputError, SteplensError
from steplens.common.extensions import package_of
from steplens.readers.ranks import no_such_rank
from steplens.run import Run, open_run
from steplens.trace.trace import Trace
from steplens.writers.common.output import NothingToWriteError
from steplens.writers.exports.flame import stacks
from steplens.writers.exports.formats import Choices, Format, all_formats
from steplens.writers.exports.subject import Subject, list_subjects
from steplens.writers.exports.target import OTHER_FOLDER, new_file, new_folder

#: folder for run directories where none is given
_EXPORTED = "exported"

Source = str | os.PathLike[str] | Trace | Run


def export(
    source: Source,
    to: str,
    output: str | os.PathLike[str] | None = None,
    *,
    rank: int | None = None,
    metric: str = stacks.SELF_CPU,
    device: str | None = None,
    on_written: Callable[[Path], None] = lambda path: None,
    on_note: Callable[[str], None] = lambda note: None,
) -> list[Path]:
    """Write every trace of a source in another format.

    A file takes the place of an older one only once it is complete; a folder that holds something is never written to.

    Args:
        source: anything that ``steplens.open`` opens, or what it returned.
        to: "kineto", "chrome", "db", "text", "parquet", "speedscope", "pprof", "stacks", "memory", or the name of a format that
            an installed package adds (``exports.formats.all_formats``).
        output: the file or folder; of several traces, and of "db" and "text", the folder that gets one file or run directory
            for each. By default the current directory, and "exported" in it for run directories. A file whose name ends in
            ``.gz`` is compressed.
        rank: only the traces of this rank.
        metric: of "stacks": "self_cpu_time_total", "self_npu_time_total" or "self_cuda_time_total".
        device: of "memory": "cpu", "cuda:0" ...; by default the accelerator that was used most, or else the CPU.
        on_written: called with each path as soon as it is complete.
        on_note: called with what the user should know about what was written, one sentence each.

    Returns:
        what was written, in the order of the traces.

    Raises:
        SteplensError: the format is unknown, the source cannot be read or has nothing of what the format shows, or the
            target cannot be written.
    """
    target_format = format_of(to)
    traces = list_subjects(source if isinstance(source, (Trace, Run)) else open_run(source))
    selected = [subject for subject in traces if rank is None or subject.trace.rank == rank]
    if not selected:
        path = source.path if isinstance(source, Run) else traces[0].path if isinstance(source, Trace) else Path(source)
        raise no_such_rank(path, rank, {subject.trace.rank for subject in traces})
    choices = Choices(metric, device, on_note)
    written = []
    for subject, target in zip(selected, _target_paths(selected, target_format, output), strict=True):
        export_trace(subject, target_format, target, choices)
        written.append(target)
        on_written(target)
    return written


def format_of(name: str) -> Format:
    """The format of a name.

    Raises:
        SteplensError: there is none.
    """
    formats = all_formats()
    if name not in formats:
        raise SteplensError(f"{name!r} is no export format; they are {', '.join(formats)}")
    return formats[name]


def export_trace(subject: Subject, chosen: Format, target: Path, choices: Choices | None = None) -> None:
    """Write one trace to one file or folder.

    Raises:
        SteplensError: see ``export``.
    """
    if target.exists() and subject.path.exists() and target.samefile(subject.path):
        raise InputError(target, "is what is exported", "Give another --out")
    try:
        if chosen.write_folder is not None:
            with new_folder(target, _other_run_folder(chosen, target) if chosen.is_run else OTHER_FOLDER) as folder:
                chosen.write_folder(subject, folder)
        elif chosen.write is not None:
            with new_file(target, compressed=chosen.compressed or target.suffix == ".gz") as handle:
                chosen.write(subject, target.name, handle, choices or Choices())
    except NothingToWriteError as nothing:
        raise InputError(subject.path, f"cannot be exported as {chosen.name}: {nothing}") from nothing
    except (SteplensError, OSError, MemoryError):
        raise
    except Exception as error:  # the boundary to installed packages: what is ours stays as it is
        package = package_of(chosen)
        if not package:
            raise
        raise DefectError(subject.path, error, package, f"exported as {chosen.name}") from error


def _other_run_folder(chosen: Format, target: Path) -> str:
    """What to do where a run directory exists already, possibly of the other export type."""
    parent = target.parent
    other_path = shlex.quote(str(parent.parent / f"{parent.name or _EXPORTED}_{chosen.name}"))
    why = "text and db need a folder each, since tools read databases in place of the text files beside them"
    return f"Give another one, such as --out {other_path}, or remove it; {why}"


def _target_paths(selected: list[Subject], chosen: Format, output: str | os.PathLike[str] | None) -> list[Path]:
    """Where each trace goes."""
    output_path = Path(output) if output is not None else None
    alone = len(selected) == 1
    if (
        alone
        and output_path is not None
        and (output_path.name.endswith(chosen.suffix) if chosen.is_run else not output_path.is_dir())
    ):
        return [output_path]
    if output_path is not None and output_path.exists() and not output_path.is_dir():
        raise InputError(output_path, f"is a file, {len(selected)} traces need a folder", "Give another --out, or one --rank")
    folder = output_path or Path(_EXPORTED if chosen.is_run else ".")
    targets: list[Path] = []
    for subject in selected:
        name, rank = subject.name, subject.trace.recorded_rank
        if not alone and rank >= 0 and f"rank{rank}" not in name:
            name = f"{name}_rank{rank}"
        target, number = folder / f"{name}{chosen.suffix}", 2
        while target in targets:
            target, number = folder / f"{name}_{number}{chosen.suffix}", number + 1
        targets.append(target)
    return targets


def export_chrome_trace(source: Source, path: str | os.PathLike[str]) -> None:
    """Write the timeline of one trace as an array of trace events, for Perfetto and MindStudio Insight.

    Args:
        source: anything with one trace.
        path: the file; compressed when its name ends in ``.gz``.

    Raises:
        SteplensError: see ``export``.
    """
    _export_one(source, "chrome", path)


def export_stacks(source: Source, path: str | os.PathLike[str], metric: str = stacks.SELF_CPU) -> None:
    """Write the call stacks of one trace and the time spent in each, in the format of FlameGraph; see ``exports.flame.stacks``.

    Args:
        source: anything with one trace.
        path: the file.
        metric: "self_cpu_time_total", "self_npu_time_total" or "self_cuda_time_total".

    Raises:
        SteplensError: see ``export``.
    """
    _export_one(source, "stacks", path, metric=metric)


def export_memory_timeline(source: Source, path: str | os.PathLike[str], device: str | None = None) -> None:
    """Write the memory of one device over time by category; see ``exports.memory_timeline.memory_timeline``.

    Args:
        source: anything with one trace.
        path: the file; its suffix decides: ``.html`` is a page with a picture, ``raw.json.gz`` are events, everything
            else points.
        device: "cpu", "cuda:0" ...; by default the accelerator that was used most, or else the CPU.

    Raises:
        SteplensError: see ``export``.
    """
    _export_one(source, "memory", path, device=device)


def _export_one(source: Source, to: str, path: str | os.PathLike[str], **choices: str | None) -> None:
    if not isinstance(source, (Trace, Run)):
        source = open_run(source)
    if isinstance(source, Run):
        if len(source.traces) > 1:
            raise InputError(source.path, f"holds {len(source.traces)} traces, one is wanted here", "Give one of them")
        source = source.traces[0]
    target = Path(path)
    if target.is_dir():
        raise InputError(target, "is a folder, a file is to be written", "Give a file name")
    export(source, to, target, **choices)  # type: ignore[arg-type]
