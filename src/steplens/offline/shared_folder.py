"""Writes the results of one rank of a folder that several ranks share, as MindSpore leaves them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from steplens import mindspore_results, rundir
from steplens.offline.one_run import LEFT_ALONE, RECOMPUTED
from steplens.offline.outcome import RunResult, one_line, polars_panic
from steplens.readers import detect
from steplens.readers.mindspore.mindspore_find import MindSporeSource
from steplens.readers.reader import AnyCapture
from steplens.trace.health import HealthFinding
from steplens.writers.common.output import LEVEL1
from steplens.writers.mindspore.mindspore_result import PIPELINE_OUTPUT
from steplens.writers.result import DONE, OUTPUT_FILES, TEXT, Settings, complete, with_databases, write_result


def analyse_rank(
    capture: AnyCapture, exports: Sequence[str] | None, force: bool, recompute: bool, output: Path | None
) -> RunResult:
    """Write the results of one rank of a folder that several share: MindSpore's files, or elsewhere those of every run."""
    begin = time.perf_counter()
    try:
        if output is None and mindspore_results.is_raw(capture.where):
            if not force and mindspore_results.is_complete(capture.where):
                return RunResult(capture.path, True, already_complete=True, written_to=capture.path)
            made = mindspore_results.analyse_source(capture.where, mindspore_results.Options(data_simplification=None))
            if made.problem and made.written_to is None and (finished := _finished(capture, capture.where, made.problem, begin)):
                return finished
            seconds = round(time.perf_counter() - begin, 6)
            written = sum(status.status == DONE for status in made.outputs.values())
            note = f"{written} files of number {capture.part} in {made.written_to}" if made.written_to is not None else ""
            return RunResult(
                capture.path, not made.failed, made.outputs, seconds, made.written_to, note=note, problem=made.problem
            )
        if output is None and not recompute:
            where = capture.where
            if mindspore_results.has_host_records(where) and (host := _host_files(capture, where, begin, overwrite=force)):
                return host
            return RunResult(capture.path, True, already_complete=True, note=LEFT_ALONE, written_to=capture.path)
        into = (output or Path(RECOMPUTED)) / f"{capture.path.name}_{capture.part}{rundir.RUN_SUFFIX}"
        trace = detect.load(capture)
        rundir.make_directory(into)
        exports = with_databases(exports or [TEXT])
        statuses = write_result(
            trace, into, Settings(level=LEVEL1), export_types=exports, files=(*OUTPUT_FILES, *PIPELINE_OUTPUT)
        )
        findings = tuple(HealthFinding(**row) for row in trace.required("health").collect().iter_rows(named=True))
    except (Exception, polars_panic()) as error:  # the boundary between ranks
        return RunResult(capture.path, False, problem=one_line(error), seconds=time.perf_counter() - begin)
    seconds = round(time.perf_counter() - begin, 6)
    return RunResult(capture.path, complete(statuses), statuses, seconds, into, findings=findings)


def _finished(capture: AnyCapture, where: MindSporeSource, problem: str, begin: float) -> RunResult | None:
    """Beside windows that give nothing, finished results that stay as they are; None where there are none to read."""
    if not where.has_finished_results:
        return None
    findings = tuple(HealthFinding(**row) for row in detect.load(capture).required("health").collect().iter_rows(named=True))
    note = f"its finished results stay as they are, and what was recorded later gives nothing: {problem}"
    seconds = round(time.perf_counter() - begin, 6)
    return RunResult(capture.path, True, {}, seconds, capture.path, findings=findings, already_complete=True, note=note)


def _host_files(capture: AnyCapture, where: MindSporeSource, begin: float, *, overwrite: bool) -> RunResult | None:
    """Beside the results of MindSpore, the files of its records of the host; None where all of them are there."""
    made = mindspore_results.analyse_source(where, mindspore_results.Options(overwrite=overwrite))
    written = sum(status.status == DONE for status in made.outputs.values())
    if not written and not made.failed:
        return None
    seconds = round(time.perf_counter() - begin, 6)
    note = f"{written} files of what MindSpore did on the host, rank {capture.part}; {LEFT_ALONE}"
    return RunResult(capture.path, not made.failed, made.outputs, seconds, capture.path, note=note, problem=made.failed)
