"""Every reader opens a capture of its format that is made here, whatever lies beside the checkout, and tells its true figures.

The captures are made by the independent writers of the formats beside this module, so their figures are known without a reader.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest

import steplens
from steplens.common import rundir
from steplens.formats import recorder as layout
from steplens.readers.ascend.capture import raw_captures
from steplens.readers.ascend.database import database_captures
from steplens.readers.ascend.text import text_captures
from steplens.readers.detect import READERS, find_one
from steplens.readers.kineto import kineto_captures
from steplens.readers.mindspore import mindspore_captures
from steplens.readers.reader import AnyReader
from steplens.readers.recorder import recorder_captures
from steplens.readers.steplens_run import run_captures
from steplens.writers.result import TEXT, Settings, write_result

from ..writers.builder import training_step
from . import ascend_database, recorder_files, test_legacy_device, test_mindspore_cpu
from .ascend_fixture import RUN_NAME, write_golden

#: of 4 ms: a call of 40 us on the host, inside of a step
KINETO = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 100, "dur": 4000, "pid": 1, "tid": 1},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 150, "dur": 40, "pid": 1, "tid": 1},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 300, "dur": 70, "pid": 0, "tid": 7, "args": {"stream": 7}},
    ],
}


def kineto_file(folder: Path) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps(KINETO))
    return path


def compressed_kineto_file(folder: Path) -> Path:
    path = folder / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(KINETO).encode()))
    return path


def run_of_steplens(folder: Path) -> Path:
    run = folder / RUN_NAME
    (run / "KINETO").mkdir(parents=True)
    kineto_file(run / "KINETO")
    config = {"common_config": {"activities": ["ProfilerActivity.CPU"]}}
    (run / f"{rundir.INFO_PREFIX}.json").write_text(json.dumps({"config": config}))
    return run


def database(folder: Path, *, old: bool) -> Path:
    output = folder / RUN_NAME / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    ascend_database.golden(old=old).write(output / "ascend_pytorch_profiler_0.db")
    return output.parent


def text_results(folder: Path) -> Path:
    run = folder / RUN_NAME
    run.mkdir()
    statuses = write_result(training_step(), run, Settings(), export_types=[TEXT])
    assert not [status for status in statuses.values() if status.status == "failed"]
    return run


def mindspore_results(folder: Path) -> Path:
    path = folder / "profiler"
    path.mkdir()
    return test_mindspore_cpu.write(path)


def mindspore_logs(folder: Path) -> Path:
    path = folder / "JOB1"
    path.mkdir()
    return test_legacy_device.job(path)


def recording(folder: Path) -> Path:
    calls = recorder_files.calls(
        recorder_files.call(10_000, 50_000, 0), recorder_files.call(0, 90_000, 1, scope=layout.USER_SCOPE)
    )
    texts = recorder_files.signatures({"name": "aten::mm"}, {"name": "ProfilerStep#3"})
    clocks, thread = recorder_files.clocks(0, 100_000), recorder_files.thread(1, 7, 1)
    return recorder_files.Recording().add(clocks, thread, texts, calls, recorder_files.end(2)).write(folder / "host.rec")


@dataclass(frozen=True)
class Made:
    """A capture, who reads it, and what is in it.

    Attributes:
        reader: the one of ``READERS`` that has to take it.
        make: makes it in a folder; its path.
        steps: their numbers.
        lengths_ns: name of an operator or device task -> the lengths of all that are called so, in order of time.
    """

    reader: AnyReader
    make: Callable[[Path], Path]
    steps: list[int] = field(default_factory=list)
    lengths_ns: dict[str, list[int]] = field(default_factory=dict)


ON_DEVICE = {"MatMulV3": [5_000], "MatMulV3b": [7_500], "Add": [2_250]}
CAPTURES = {
    "Kineto": Made(kineto_captures.READER, kineto_file, [3], {"aten::mm": [40_000], "gemm": [70_000]}),
    "Kineto, compressed": Made(kineto_captures.READER, compressed_kineto_file, [3], {"aten::mm": [40_000], "gemm": [70_000]}),
    "run of steplens": Made(run_captures.READER, run_of_steplens, [3], {"aten::mm": [40_000]}),
    "recorder of operators": Made(recorder_captures.READER, recording, [3], {"aten::mm": [40_000]}),
    "Ascend, raw, exported as text": Made(raw_captures.READER, write_golden, [], ON_DEVICE),
    "Ascend, raw, exported as databases": Made(
        raw_captures.READER, lambda folder: write_golden(folder, export="db"), [], ON_DEVICE
    ),
    "Ascend, database": Made(database_captures.READER, lambda folder: database(folder, old=False), [], ON_DEVICE),
    "Ascend, database of an older version": Made(
        database_captures.READER, lambda folder: database(folder, old=True), [], ON_DEVICE
    ),
    "Ascend, text": Made(text_captures.READER, text_results, [7], {"aten::linear": [28_000], "aten::add": [11_500]}),
    "MindSpore, results of a CPU": Made(
        mindspore_captures.READER, mindspore_results, [], {test_mindspore_cpu.GRADIENT: [340_206, 1_250_000]}
    ),
    "MindSpore, device logs": Made(mindspore_captures.READER, mindspore_logs, [1, 2], {}),
}


@pytest.mark.parametrize("name", CAPTURES)
def test_it_is_read_with_its_true_figures(name: str, tmp_path: Path) -> None:
    capture = CAPTURES[name]
    path = capture.make(tmp_path)
    assert find_one(path).reader is capture.reader
    (trace,) = steplens.open(path).traces
    if capture.steps:
        assert trace.required("steps").sort("start_ns").collect()["id"].to_list() == capture.steps
    calls = pl.concat(
        trace.required(table).select(pl.col("name").cast(pl.String), "start_ns", "end_ns").collect()
        for table in ("ops", "kernels")
        if table in trace
    )
    for called, lengths in capture.lengths_ns.items():
        rows = calls.filter(name=called).unique().sort("start_ns")
        assert (rows["end_ns"] - rows["start_ns"]).to_list() == lengths


def test_no_reader_goes_without() -> None:
    assert {capture.reader for capture in CAPTURES.values()} == set(READERS)
