"""``msprof-analyze cluster -m all`` and steplens on ranks of which only another analysis' results were kept: the same figures.

What both are given is ``communication.json``, ``communication_matrix.json`` and ``step_trace_time.csv``, or ``analysis.db``.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

import steplens

from ..shared_data import shared
from . import msprof

pytestmark = pytest.mark.slow

OUTPUT = "ASCEND_PROFILER_OUTPUT"
SUMS = ("communication.json", "communication_matrix.json", "step_trace_time.csv")
#: part of a step -> where each has it; theirs in us
PARTS = {
    "computing_ns": ("Computing", "computing"),
    "exposed_communication_ns": ("Communication(Not Overlapped)", "communication_not_overlapped"),
    "overlapped_communication_ns": ("Overlapped", "overlapped"),
    "idle_ns": ("Free", "free"),
}
TIMES = {
    "elapse_ms": ("Elapse Time(ms)", "elapsed_time"),
    "transit_ms": ("Transit Time(ms)", "transit_time"),
    "wait_ms": ("Wait Time(ms)", "wait_time"),
    "synchronization_ms": ("Synchronization Time(ms)", "synchronization_time"),
    "idle_ms": ("Idle Time(ms)", "idle_time"),
}


def job_of(top: Path, captures: tuple[tuple[str, int], ...], names: tuple[str, ...]) -> Path:
    """Ranks 0, 1 ... with nothing but some result files and the name by which the tool knows their rank."""
    for rank, (name, recorded) in enumerate(captures):
        folder = top / f"worker_{rank}_2024010203040{rank}_ascend_pt"
        (folder / OUTPUT).mkdir(parents=True)
        for file in names:
            shutil.copyfile(shared("ascend_pytorch", name, f"rank{recorded}_ascend_pt") / OUTPUT / file, folder / OUTPUT / file)
        (folder / f"profiler_info_{rank}.json").write_text("{}")
    return top


def test_text_files_alone_give_what_the_tool_gives(tmp_path: Path) -> None:
    job = job_of(tmp_path / "job", (("text_level1", 0), ("text_level1", 1)), SUMS)
    ran = msprof.cluster(job, tmp_path / "theirs")
    assert ran.errors == []
    theirs = tmp_path / "theirs" / "cluster_analysis_output"
    run = steplens.open(job)

    with (theirs / "cluster_step_trace_time.csv").open(newline="") as handle:
        merged = {int(row["Index"]): row for row in csv.DictReader(handle)}
    steps = run.steps()
    assert sorted(merged) == steps["rank"].to_list() == [0, 1]
    for row in steps.iter_rows(named=True):
        for part, (title, _) in PARTS.items():
            assert row[part] == round(float(merged[row["rank"]][title]) * 1000), (row["rank"], part)
    assert (
        run.ranks()["computing_ns"].to_list()
        == steps["computing_ns"].to_list()
        == run.cluster_steps()["computation_ns"].to_list()
    )

    (by_step,) = json.loads((theirs / "cluster_communication.json").read_bytes()).values()
    told = run.communication_times()
    assert told.height == 8
    for row in told.iter_rows(named=True):
        info = by_step[f"step{row['step']}"][f"{row['name']}@{row['group']}"][str(row["rank"])]["Communication Time Info"]
        for column, (member, _) in TIMES.items():
            assert row[column] == pytest.approx(info[member], rel=1e-9), (row["rank"], row["name"], column)
    # what the tool sums up for a group is what the table of communication has for all ranks
    total = by_step["step50"][f"Total Op Info@{told['group'][0]}"]
    sums = {
        column: sum(total[rank]["Communication Time Info"][TIMES[column][0]] for rank in "01")
        for column in ("elapse_ms", "wait_ms")
    }
    (row,) = run.communication("group").to_dicts()
    assert row["duration_ns"] == pytest.approx(sums["elapse_ms"] * 1e6, rel=1e-6)

    (links_of_step,) = json.loads((theirs / "cluster_communication_matrix.json").read_bytes()).values()
    (links,) = (ops[f"Total Op Info@{told['group'][0]}"] for ops in links_of_step.values())
    ours = {f"{row['source']}-{row['destination']}": row for row in run.links().to_dicts()}
    # links to ranks of which nothing was given the tool leaves out, with a warning each
    assert set(links) == {"0-0", "0-1", "1-0", "1-1"} and len(ours) == 16
    for name, link in links.items():
        assert ours[name]["transport"] == link["Transport Type"]
        assert ours[name]["time_ns"] == pytest.approx(link["Transit Time(ms)"] * 1e6)
        assert ours[name]["bytes"] == pytest.approx(link["Transit Size(MB)"] * 1e6)
        assert ours[name]["bytes_per_s"] == pytest.approx(link["Bandwidth(GB/s)"] * 1e9, rel=1e-4)


def test_databases_of_an_analysis_alone_give_what_the_tool_gives(tmp_path: Path) -> None:
    job = job_of(tmp_path / "job", (("db_level2", 0), ("db_level2", 0)), ("analysis.db",))
    ran = msprof.cluster(job, tmp_path / "theirs")
    assert ran.errors == []
    run = steplens.open(job)
    merged = {int(row["index"]): row for row in ran.tables["ClusterStepTraceTime"]}
    steps = run.steps()
    assert sorted(merged) == steps["rank"].to_list() == [0, 1]
    for row in steps.iter_rows(named=True):
        for part, (_, column) in PARTS.items():
            assert row[part] == round(merged[row["rank"]][column] * 1000), (row["rank"], part)
    times = {(row["rank_id"], row["hccl_op_name"]): row for row in ran.tables["ClusterCommunicationTime"]}
    for row in run.communication_times().iter_rows(named=True):
        for column, (_, theirs) in TIMES.items():
            assert row[column] == pytest.approx(times[row["rank"], row["name"]][theirs], rel=1e-9)


def test_the_recipe_that_compares_ranks_wants_more_than_that(tmp_path: Path) -> None:
    """The tool has no answer where steplens has one."""
    job = job_of(tmp_path / "job", (("db_level2", 0), ("db_level2", 0)), ("analysis.db",))
    ran = msprof.cluster(job, tmp_path / "theirs", "cluster_time_summary")
    assert any("No valid step_time/step_trace_time in cluster data" in line for line in ran.errors)
    assert "ClusterTimeSummary" not in ran.tables
    assert steplens.open(job).ranks()["steps"].to_list() == [1, 1]
