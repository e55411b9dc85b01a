"""Writes the results of one rank or device of MindSpore; several may share one folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from steplens.common import rundir
from steplens.common.errors import InputError, SteplensError
from steplens.offline.mindspore import host, sources, windows
from steplens.offline.mindspore.settings import Options
from steplens.offline.one_run import LEFT_ALONE, RECOMPUTED
from steplens.offline.outcome import RunResult, one_line, polars_panic, recorded_findings
from steplens.offline.processes import Job, analyse_all, process_number
from steplens.readers import detect
from steplens.readers.mindspore import mindspore_captures
from steplens.readers.mindspore.legacy_files import MADE_FROM_LOGS
from steplens.readers.mindspore.mindspore_find import LEGACY, WINDOWS, MindSporeSource
from steplens.writers import result as results
from steplens.writers.common.output import LEVEL1
from steplens.writers.mindspore import mindspore_result
from steplens.writers.result import DONE, FAILED, OutputStatus


def analyse_rank(
    source: MindSporeSource, exports: Sequence[str] | None, force: bool, recompute: bool, output: Path | None
) -> RunResult:
    """Write the results of one rank: MindSpore's files where it was recorded, or elsewhere those of every run.

    Never raises for what is wrong with its data. See ``offline.analyse`` for the arguments.
    """
    begin = time.perf_counter()
    try:
        if output is not None or (recompute and not sources.is_raw(source)):
            result = _analyse_elsewhere(source, exports, output or Path(RECOMPUTED))
        elif sources.is_raw(source):
            result = _analyse_raw(source, force)
        else:
            result = _complete_results_of_others(source, overwrite=force)
    except (Exception, polars_panic()) as error:  # the boundary between ranks
        result = RunResult(source.path, False, problem=one_line(error))
    return replace(result, seconds=round(time.perf_counter() - begin, 6))


def analyse_all_ranks(path: Path, options: Options, processes: int | None = None) -> list[tuple[MindSporeSource, RunResult]]:
    """Write the results of every rank below ``path``; what is wrong with one rank does not keep the others from theirs.

    Raises:
        InputError: there is nothing to analyse.
    """
    ranks = sources.find(path)
    jobs = [Job(source.path, partial(analyse_source, source, options)) for source in ranks]
    return list(zip(ranks, analyse_all(jobs, process_number(processes), lambda result: None), strict=True))


def analyse_source(source: MindSporeSource, options: Options) -> RunResult:
    """Write the results of one rank or device where its data is. Never raises for what is wrong with its data."""
    try:
        if source.kind == LEGACY:
            into, outputs = _analyse_logs(source, options)
        elif source.kind == WINDOWS:
            into, outputs = source.path, windows.analyse(source, options)
        else:
            into, outputs = source.path, _analyse_host(source, options)
        if sources.is_raw(source):
            sources.keep_complete(source)
    except (Exception, polars_panic()) as error:  # the boundary between ranks
        where = "" if isinstance(error, SteplensError) else f"{sources.in_words(source)}: "
        return RunResult(source.path, False, problem=f"{where}{one_line(error)}")
    return RunResult(source.path, all(status.status != FAILED for status in outputs.values()), outputs, written_to=into)


def describe_failure(source: MindSporeSource, result: RunResult) -> str:
    """Why the results of a rank are not complete, in one sentence; empty where they are."""
    broken = [f"{name} ({status.reason})" for name, status in result.outputs.items() if status.status == FAILED]
    return result.problem or (f"{sources.in_words(source)}: not written: {', '.join(broken)}" if broken else "")


def _analyse_logs(source: MindSporeSource, options: Options) -> tuple[Path, dict[str, OutputStatus]]:
    trace = source.read()
    into = rundir.make_directory(source.path / rundir.PROFILER_DIRECTORY)
    outputs = mindspore_result.write_flat(trace, into, source.number, mindspore_result.DEVICE_FILES)
    more = {"source": MADE_FROM_LOGS, "health": windows.absent_points(trace), **windows.written_names(outputs)}
    info = mindspore_result.profiler_info(trace, source.number, outputs, more)
    rundir.write_json(into / f"{rundir.INFO_PREFIX}_{source.number}.json", info, indent=4)
    options.prettify(into, outputs)
    return into, outputs


def _analyse_host(source: MindSporeSource, options: Options) -> dict[str, OutputStatus]:
    if options.step_list is not None:
        raise InputError(source.path, "holds records of the host, which belong to no step", "Leave out the list of steps")
    outputs = host.write(source, overwrite=options.overwrite)
    options.prettify(source.path, outputs)
    return outputs


def _analyse_raw(source: MindSporeSource, force: bool) -> RunResult:
    """Results beside the raw data they are made of."""
    if not force and sources.is_complete(source):
        return RunResult(source.path, True, already_complete=True, written_to=source.path)
    result = analyse_source(source, Options(data_simplification=None))
    if result.problem and source.has_finished_results:
        # they stay as they are beside windows that give nothing
        note = f"its finished results stay as they are, and what was recorded later gives nothing: {result.problem}"
        findings = recorded_findings(detect.load(mindspore_captures.READER.capture_of(source)))
        return RunResult(source.path, True, {}, written_to=source.path, findings=findings, already_complete=True, note=note)
    note = f"{_count_written(result)} files of number {source.number} in {result.written_to}"
    return replace(result, note=note) if result.written_to is not None else result


def _complete_results_of_others(source: MindSporeSource, *, overwrite: bool) -> RunResult:
    """Beside the results of MindSpore, which stay, the files of its records of the host, unless all of them are there."""
    if source.host_file is not None:
        result = analyse_source(source, Options(overwrite=overwrite))
        if problem := describe_failure(source, result):
            result = replace(result, problem=problem)
        if problem or _count_written(result):
            note = f"{_count_written(result)} files of what MindSpore did on the host, rank {source.number}; {LEFT_ALONE}"
            return replace(result, written_to=source.path, note=note)
    return RunResult(source.path, True, already_complete=True, note=LEFT_ALONE, written_to=source.path)


def _analyse_elsewhere(source: MindSporeSource, exports: Sequence[str] | None, output: Path) -> RunResult:
    """The results of every run, in a run directory of their own below ``output``."""
    into = output / f"{source.path.name}_{source.number}{rundir.RUN_SUFFIX}"
    trace = detect.load(mindspore_captures.READER.capture_of(source))
    rundir.make_directory(into)
    files = (*results.OUTPUT_FILES, *mindspore_result.PIPELINE_OUTPUT)
    kinds = results.with_databases(exports or [results.TEXT])
    outputs = results.write_result(trace, into, results.Settings(level=LEVEL1), export_types=kinds, files=files)
    return RunResult(source.path, results.complete(outputs), outputs, written_to=into, findings=recorded_findings(trace))


def _count_written(result: RunResult) -> int:
    return sum(status.status == DONE for status in result.outputs.values())
