"""Which files a run gets: by its level, its options and its activities, as the Ascend PyTorch Profiler's guide lists them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from steplens.common import rundir
from steplens.writers import result
from steplens.writers.result import DATABASE, DONE, OUTPUT_FILES, SKIPPED, TEXT, Settings, why_not_due, write_result

from .ascend import ascend_run

LEVELS = ("Level_none", "Level0", "Level1", "Level2")
#: file -> the lowest level that has it, and the option that it needs
DOCUMENTED = {
    "trace_view.json": ("Level_none", ""),
    "operator_details.csv": ("Level_none", ""),
    "memory_record.csv": ("Level_none", "profile_memory"),
    "operator_memory.csv": ("Level_none", "profile_memory"),
    "kernel_details.csv": ("Level0", ""),
    "step_trace_time.csv": ("Level0", ""),
    "npu_module_mem.csv": ("Level0", ""),
    "task_time.csv": ("Level0", ""),
    "l2_cache.csv": ("Level0", "l2_cache"),
    "soc_pmu.csv": ("Level0", "l2_cache"),
    "nic.csv": ("Level0", "sys_io"),
    "roce.csv": ("Level0", "sys_io"),
    "pcie.csv": ("Level0", "sys_interconnection"),
    "hccs.csv": ("Level0", "sys_interconnection"),
    "op_statistic.csv": ("Level1", ""),
    "api_statistic.csv": ("Level1", ""),
    "communication.json": ("Level1", ""),
    "communication_matrix.json": ("Level1", ""),
    "data_preprocess.csv": ("Level2", ""),
    "ascend_pytorch_profiler{rank}.db": ("Level_none", ""),
    "analysis.db": ("Level0", ""),
}
SWITCHES = ("profile_memory", "l2_cache", "sys_io", "sys_interconnection")


def test_every_output_is_documented() -> None:
    assert {file.name for file in OUTPUT_FILES} == set(DOCUMENTED)


@pytest.mark.parametrize("level", LEVELS)
def test_levels_and_options(level: str) -> None:
    for values in itertools.product((True, False), repeat=len(SWITCHES)):
        switches = dict(zip(SWITCHES, values, strict=True))
        due = {file.name for file in OUTPUT_FILES if not why_not_due(file, Settings(level, switches, ("CPU", "NPU")))}
        assert due == {
            name
            for name, (least, switch) in DOCUMENTED.items()
            if LEVELS.index(level) >= LEVELS.index(least) and switches.get(switch, True)
        }, switches


def test_activities() -> None:
    for activities, with_operators in ((("CPU",), True), (("NPU",), False), (("CUDA",), False), ((), True)):
        due = {file.name for file in OUTPUT_FILES if not why_not_due(file, Settings("Level2", {}, activities))}
        assert ("operator_details.csv" in due) == with_operators
        assert set(DOCUMENTED) - due <= {"operator_details.csv"}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("export", [(TEXT,), (DATABASE,), (TEXT, DATABASE)])
def test_what_is_written(tmp_path: Path, level: str, export: tuple[str, ...]) -> None:
    """A run that has everything gets exactly the files that are due, and every other one says why not."""
    tables = [
        {"table": name.removesuffix(".csv"), "row": 0, "record": '{"a": "1"}'} for name in DOCUMENTED if name.endswith(".csv")
    ]
    trace = ascend_run(source_tables=tables)
    switches = {"profile_memory": True, "l2_cache": False, "sys_io": True, "sys_interconnection": False}
    statuses = write_result(trace, tmp_path, Settings(level, switches, ("CPU", "NPU")), export_types=export)
    expected = {
        file.name_for(trace): LEVELS.index(level) >= LEVELS.index(DOCUMENTED[file.name][0])
        and switches.get(DOCUMENTED[file.name][1], True)
        for file in OUTPUT_FILES
        if file.export in export
    }
    assert {name: status.status == DONE for name, status in statuses.items()} == expected
    assert all(status.status == SKIPPED and status.reason for name, status in statuses.items() if not expected[name])
    there = {path.name for path in (tmp_path / rundir.OUTPUT_DIRECTORY).iterdir()}
    assert there == {name for name, due in expected.items() if due} | {rundir.STATUS_FILE, rundir.COMPLETION_MARKER}


def test_a_table_that_the_source_lacks_is_no_failure(tmp_path: Path) -> None:
    statuses = write_result(ascend_run(), tmp_path, Settings("Level2"))
    assert (statuses["nic.csv"].status, statuses["nic.csv"].reason) == (SKIPPED, "the source has no nic")
    assert result.complete(statuses)
