"""``msprof-analyze cluster -m all`` on real jobs: every file or table, every row, no error."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from . import msprof, runs
from .jobs import train

pytestmark = pytest.mark.slow

#: operations of a step, but those of DistributedDataParallel's buckets
OTHER_OPERATIONS = 1 + train.BROADCASTS
GROUP = str((ord("0") << 32) + ord("0"))

COLUMNS = {
    "Computing": "computing",
    "Communication(Not Overlapped)": "communication_not_overlapped",
    "Overlapped": "overlapped",
    "Communication": "communication",
    "Free": "free",
    "Stage": "stage",
    "Bubble": "bubble",
    "Communication(Not Overlapped and Exclude Receive)": "communication_not_overlapped_and_exclude_receive",
    "Preparing": "preparing",
}

TABLES = {
    "CommunicationGroupMapping",
    "ClusterCommunicationTime",
    "ClusterCommunicationBandwidth",
    "ClusterCommunicationMatrix",
    "ClusterStepTraceTime",
    "ClusterBaseInfo",
    "HostInfo",
    "RankDeviceMap",
}


def steps_of(ranks: int) -> list[str]:
    return [str(step) for step in runs.steps_of(ranks)]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def step_times(run: Path) -> dict[str, dict[str, float]]:
    """The rows of a run's StepTraceTime or step_trace_time.csv, by step and the columns of the former."""
    text = runs.output(run) / "step_trace_time.csv"
    if text.exists():
        return {row["Step"]: {column: float(row[title]) for title, column in COLUMNS.items()} for row in rows(text)}
    with closing(sqlite3.connect(runs.output(run) / "analysis.db")) as database:
        names = ", ".join(COLUMNS.values())
        found = database.execute(f"SELECT step, {names} FROM StepTraceTime").fetchall()
    return {step: dict(zip(COLUMNS.values(), values, strict=True)) for step, *values in found}


def operations(run: Path) -> dict[tuple[str, str], float]:
    """Elapsed ms of every operation of a run, by step and name."""
    text = runs.output(run) / "communication.json"
    if text.exists():
        return {
            (step, name.partition("@")[0]): info["Communication Time Info"]["Elapse Time(ms)"]
            for step, kinds in json.loads(text.read_bytes()).items()
            for kind in kinds.values()
            for name, info in kind.items()
            if name != "Total Op Info"
        }
    with closing(sqlite3.connect(runs.output(run) / "analysis.db")) as database:
        found = database.execute("SELECT step, hccl_op_name, elapse_time FROM CommAnalyzerTime").fetchall()
    return {(step, name): elapsed for step, name, elapsed in found}


def check_text(result: Path, found: list[Path]) -> None:
    ranks = len(found)
    expected = {(str(rank), step): times for rank, run in enumerate(found) for step, times in step_times(run).items()}
    merged = {(row["Index"], row["Step"]): row for row in rows(result / "cluster_step_trace_time.csv") if row["Type"] == "rank"}
    assert set(merged) == set(expected) == {(str(rank), step) for rank in range(ranks) for step in steps_of(ranks)}
    for key, row in merged.items():
        for title, column in COLUMNS.items():
            assert float(row[title]) == pytest.approx(expected[key][column], abs=1e-6), (key, title)
        assert int(row["DP Index"]) == int(row["Index"])
    groups = json.loads((result / "communication_group.json").read_bytes())
    assert groups["collective"] == [list(range(ranks))] and groups["p2p"] == []
    (described,) = groups["comm_group_parallel_info"]
    assert described == {
        "type": "collective", "rank_set": list(range(ranks)), "group_name": GROUP, "group_id": "0", "pg_name": "default_group",
    }  # fmt: skip
    (steps,) = json.loads((result / "cluster_communication.json").read_bytes()).values()
    assert set(steps) == {f"step{step}" for step in steps_of(ranks)}
    for step, names in steps.items():
        total = names.pop(f"Total Op Info@{GROUP}")
        assert len(names) > OTHER_OPERATIONS
        for name, by_rank in names.items():
            assert set(by_rank) == {str(rank) for rank in range(ranks)}, name
            for rank, info in by_rank.items():
                own = operations(found[int(rank)])[step, name.partition("@")[0]]
                assert info["Communication Time Info"]["Elapse Time(ms)"] == own
        for rank, run in enumerate(found):
            elapsed = sum(length for (at, _), length in operations(run).items() if at == step)
            assert total[str(rank)]["Communication Time Info"]["Elapse Time(ms)"] == pytest.approx(elapsed)
    (steps,) = json.loads((result / "cluster_communication_matrix.json").read_bytes()).values()
    for names in steps.values():
        assert {f"allreduce-total@{GROUP}", f"broadcast-total@{GROUP}", f"Total Op Info@{GROUP}"} == set(names)
        assert all(set(links) == {f"{rank}-{rank}" for rank in range(ranks)} for links in names.values())


def check_tables(tables: dict[str, list[dict[str, Any]]], found: list[Path]) -> None:
    ranks = len(found)
    assert set(tables) >= TABLES
    expected = {(str(rank), step): times for rank, run in enumerate(found) for step, times in step_times(run).items()}
    merged = {(str(row["index"]), str(row["step"])): row for row in tables["ClusterStepTraceTime"] if row["type"] == "rank"}
    assert set(merged) == set(expected) == {(str(rank), step) for rank in range(ranks) for step in steps_of(ranks)}
    for key, row in merged.items():
        assert {column: row[column] for column in COLUMNS.values()} == pytest.approx(expected[key], abs=1e-6)
    (mapping,) = tables["CommunicationGroupMapping"]
    members = f"({','.join(map(str, range(ranks)))})"
    assert mapping == {
        "type": "collective", "rank_set": members, "group_name": GROUP, "group_id": "0", "pg_name": "default_group",
    }  # fmt: skip
    times = [row for row in tables["ClusterCommunicationTime"] if row["hccl_op_name"] != "Total Op Info"]
    listed = {(row["rank_id"], row["step"], row["hccl_op_name"]): row["elapsed_time"] for row in times}
    assert listed == {
        (rank, step, name): elapsed for rank, run in enumerate(found) for (step, name), elapsed in operations(run).items()
    }
    assert len(tables["ClusterCommunicationTime"]) == len(listed) + ranks * len(steps_of(ranks))
    # the sizes of the operations; nothing measured how fast they moved
    moved = tables["ClusterCommunicationBandwidth"]
    own = [row for row in moved if row["hccl_op_name"] != "Total Op Info"]
    assert {(row["rank_id"], row["step"], row["hccl_op_name"]) for row in own} == set(listed)
    assert {row["band_type"] for row in moved} == {"GLOO"} and not any(row["bandwidth"] for row in moved)
    vectors = {round(size / 1e6, 6) for size in (4 * train.REDUCED, 4 * train.BROADCAST)}
    assert vectors < {row["transit_size"] for row in own}
    links = {(row["step"], row["hccl_op_name"], row["src_rank"], row["dst_rank"]) for row in tables["ClusterCommunicationMatrix"]}
    kinds = ("allreduce-total", "broadcast-total", "Total Op Info")
    assert links == {(f"step{step}", kind, rank, rank) for step in steps_of(ranks) for kind in kinds for rank in range(ranks)}
    assert [row["rankId"] for row in sorted(tables["RankDeviceMap"], key=lambda row: row["rankId"])] == list(range(ranks))
    assert len(tables["HostInfo"]) == 1 and tables["HostInfo"][0]["hostName"] not in ("", "unknown", None)
    information = {row["key"]: row["value"] for row in tables["ClusterBaseInfo"]}
    assert json.loads(information["distributed_args"])["data_parallel_size"] == ranks


#: each form once, and each number of ranks
FEW = {("text", 4), ("db", 2), ("both", 2), ("text", 1)}
FORMS = [(form, ranks) for form in ("text", "db", "both") for ranks in (1, 2, 4) if (form, ranks) != ("both", 1)]


@pytest.mark.parametrize(
    ("form", "ranks"), [pytest.param(*case, marks=() if case in FEW else pytest.mark.long) for case in FORMS]
)
def test_a_job_merges(job: Callable[[int], Path], tmp_path: Path, form: str, ranks: int) -> None:
    folder = job(ranks) / form
    ran = msprof.cluster(folder, tmp_path)
    assert ran.errors == []
    result = tmp_path / "cluster_analysis_output"
    names = {path.name for path in result.iterdir()}
    if form == "text":
        assert names == {
            "cluster_step_trace_time.csv",
            "cluster_communication.json",
            "cluster_communication_matrix.json",
            "communication_group.json",
        }
        check_text(result, runs.run_directories(folder))
    else:
        # a database beats the texts beside it
        assert names == {"cluster_analysis.db"}
        check_tables(ran.tables, runs.run_directories(folder))


def test_a_pipeline_merges(pipeline: Path, tmp_path: Path) -> None:
    ran = msprof.cluster(pipeline / "pipeline", tmp_path)
    assert ran.errors == []
    (mapping,) = ran.tables["CommunicationGroupMapping"]
    assert (mapping["type"], mapping["rank_set"], mapping["pg_name"]) == ("p2p", "(0,1)", "default_group")
    times = [row for row in ran.tables["ClusterCommunicationTime"] if row["hccl_op_name"] != "Total Op Info"]
    expected = {
        (rank, f"step{step}", f"hcom_{kind}__256_{step}_0")
        for rank in (0, 1)
        for step in steps_of(2)
        for kind in ("send", "receive")
    }
    assert {(row["rank_id"], row["step"], row["hccl_op_name"]) for row in times} == expected
    for row in ran.tables["ClusterStepTraceTime"]:
        # waiting in receive is the bubble, and it is no part of the stage
        assert row["bubble"] > 0
        parts = row["computing"] + row["communication_not_overlapped"] + row["free"] - row["bubble"]
        assert row["stage"] == pytest.approx(parts, rel=1e-3)
