"""What steplens says of real distributed jobs: ranks, groups, operations with size, type and step."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

import steplens
from steplens.analysis.cluster.measured_communication import group_hash
from steplens.trace.trace import Trace

from . import runs
from .jobs import pipeline as pipeline_job
from .jobs import train

pytestmark = pytest.mark.slow

#: steps are counted from 0, and one waits, one warms up
STEPS = [2, 3, 4]


def communication(trace: Trace) -> pl.DataFrame:
    frame = trace.required("communication").collect()
    return frame.with_columns(pl.col("name", "kind", "operation", "group", "dtype").cast(pl.String))


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("form", ["text", "db", "both"])
def test_every_rank_has_one_complete_run_directory(job: Callable[[int], Path], form: str, ranks: int) -> None:
    found = runs.run_directories(job(ranks) / form)
    assert [runs.rank_of(run) for run in found] == list(range(ranks))
    for rank, run in enumerate(found):
        output = runs.output(run)
        names = {path.name for path in output.iterdir()}
        texts = {
            "trace_view.json",
            "step_trace_time.csv",
            "kernel_details.csv",
            "communication.json",
            "communication_matrix.json",
        }
        databases = {"analysis.db", f"ascend_pytorch_profiler_{rank}.db"}
        assert "analyse.done" in names
        assert texts & names == (texts if form != "db" else set())
        assert {name for name in names if name.endswith(".db")} == (databases if form != "text" else set())
        if ranks > 1:
            described = {"group_name": "default_group", "group_rank": rank, "global_ranks": list(range(ranks))}
            metadata = json.loads((run / "profiler_metadata.json").read_bytes())
            assert list(metadata["parallel_group_info"].values()) == [described]


@pytest.mark.parametrize("ranks", [2, 4])
def test_collectives_of_every_rank(job: Callable[[int], Path], ranks: int) -> None:
    run = steplens.open(job(ranks) / "both")
    assert sorted(trace.rank for trace in run.traces) == list(range(ranks))
    for trace in run.traces:
        assert trace.required("steps").collect()["id"].to_list() == STEPS
        found = communication(trace)
        assert set(found["kind"]) == {"collective"}
        assert set(found["group"]) == {"default_group"}
        assert set(found["ranks"]) == {ranks}
        assert set(found["dtype"]) == {"float"}
        assert (found["bytes"] == 4 * found["elements"]).all()
        assert (found["end_ns"] > found["start_ns"]).all()
        for step in STEPS:
            rows = found.filter(pl.col("step") == step)
            broadcasts = rows.filter(pl.col("operation") == "broadcast")
            assert broadcasts["elements"].to_list() == [train.BROADCAST] * train.BROADCASTS
            reduced = rows.filter(pl.col("operation") == "allreduce")
            # DistributedDataParallel cuts its gradients into buckets as it likes, but it reduces each parameter once
            assert reduced["elements"].sum() == train.PARAMETERS + train.REDUCED
            assert rows.height == broadcasts.height + reduced.height


def test_point_to_point_operations_of_a_pipeline(pipeline: Path) -> None:
    run = steplens.open(pipeline / "pipeline")
    elements = pipeline_job.BATCH * pipeline_job.WIDTH
    orders = []
    for trace in sorted(run.traces, key=lambda trace: trace.rank):
        found = communication(trace).sort("start_ns")
        assert set(found["group"]) == {"default_group"}
        assert found["elements"].to_list() == [elements] * 2 * pipeline_job.STEPS
        assert found["bytes"].to_list() == [4 * elements] * 2 * pipeline_job.STEPS
        assert Counter(zip(found["kind"], found["step"], strict=True)) == Counter(
            {(kind, step): 1 for kind in ("send", "receive") for step in STEPS}
        )
        orders.append([kind for (kind,) in found.select("kind").rows()][:2])
    assert orders == [["send", "receive"], ["receive", "send"]]


def test_a_group_that_nobody_recorded_is_not_made_up(pipeline: Path) -> None:
    for trace in steplens.open(pipeline / "groups").traces:
        found = communication(trace)
        assert found.height == 4 * pipeline_job.STEPS
        sent = found.filter(pl.col("kind") != "collective")
        assert sent.height == 2 * pipeline_job.STEPS
        # PyTorch's flight recorder tells the groups of collectives, in versions that have it for gloo, and none of these
        assert sent["group"].null_count() == sent["ranks"].null_count() == sent.height
        reduced = found.filter(pl.col("kind") == "collective")
        recorded = any((pipeline / "groups").rglob("collectives.json"))
        assert set(reduced.select("group", "ranks").rows()) == ({("1", 2)} if recorded else {(None, None)})


@pytest.mark.parametrize("ranks", [2, 4])
def test_operations_have_the_same_names_on_every_rank_and_in_every_form(job: Callable[[int], Path], ranks: int) -> None:
    """Names, groups, times and lengths of communication.json, the timeline and both databases, against the tables."""
    group = str(group_hash("0"))
    assert group == str((ord("0") << 32) + ord("0"))
    names = []
    for run in runs.run_directories(job(ranks) / "both"):
        rank, output = runs.rank_of(run), runs.output(run)
        base_ns = json.loads((output / "analyse_status.json").read_bytes())["base_time_ns"]
        (trace,) = steplens.open(run).traces
        recorded = sorted(communication(trace).select("start_ns", pl.col("end_ns") - pl.col("start_ns")).rows())
        times = json.loads((output / "communication.json").read_bytes(), parse_float=Decimal)
        listed = {
            (key.partition("@")[0], round(info["Communication Time Info"]["Start Timestamp(us)"] * 1000) + base_ns,
             round(info["Communication Time Info"]["Elapse Time(ms)"] * 10**6))
            for step in times.values() for kind in step.values() for key, info in kind.items() if key != "Total Op Info"
        }  # fmt: skip
        assert sorted(row[1:] for row in listed) == recorded
        assert {key.partition("@")[2] for step in times.values() for key in step["collective"]} - {""} == {group}
        timeline = json.loads((output / "trace_view.json").read_bytes(), parse_float=Decimal)
        (lanes,) = (
            event["pid"] for event in timeline if event["name"] == "process_name" and event["args"]["name"] == "Communication"
        )
        drawn = {
            (event["name"], round(event["ts"] * 1000) + base_ns, round(event["dur"] * 1000))
            for event in timeline
            if event["ph"] == "X" and event["pid"] == lanes
        }
        assert drawn == listed
        with closing(sqlite3.connect(output / f"ascend_pytorch_profiler_{rank}.db")) as database:
            stored = database.execute(
                "SELECT o.value, startNs, endNs - startNs, g.value FROM COMMUNICATION_OP JOIN STRING_IDS o ON o.id = opName "
                "JOIN STRING_IDS g ON g.id = groupName"
            ).fetchall()
        assert {row[:3] for row in stored} == listed
        assert {row[3] for row in stored} == {"0"}
        with closing(sqlite3.connect(output / "analysis.db")) as database:
            analysed = database.execute(
                "SELECT hccl_op_name, elapse_time, group_name, step, type FROM CommAnalyzerTime"
            ).fetchall()
        assert {(name, round(elapsed * 1e6)) for name, elapsed, *_ in analysed} == {(name, length) for name, _, length in listed}
        assert {row[2:] for row in analysed} == {(group, f"step{step}", "collective") for step in STEPS}
        names.append({(name, step) for name, _, _, step, _ in analysed})
    assert all(found == names[0] for found in names)
