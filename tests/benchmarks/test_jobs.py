"""Generated jobs, read by steplens, against what their simulation says happened."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from benchmarks.jobs.__main__ import main
from benchmarks.jobs.layout import Layout, choose_layout, parse_layout
from benchmarks.jobs.noise import quantiles_of, stored_noise
from benchmarks.jobs.truth import MESSAGES, RECORD, STEPS

import steplens
from steplens.analysis.steps.times import step_times
from steplens.trace.schema import COLLECTIVE

from ..once import once
from ..shared_data import shared

SMALL = ["--layers", "1", "--operators-per-layer", "3", "--batches", "3", "--steps", "2", "--seed", "5"]


@dataclass
class Generated:
    """A job on disk: what steplens reads, and what happened."""

    folder: Path

    def __post_init__(self) -> None:
        self.run = steplens.open(self.folder)
        self.truth = json.loads((self.folder / RECORD).read_text())
        self.steps = pl.read_parquet(self.folder / STEPS)
        messages = pl.read_parquet(self.folder / MESSAGES)
        operation = pl.col("operation").str.replace("_base", "").str.replace_all("_", "")
        self.messages = messages.with_columns(operation=operation, group=pl.col("group").cast(pl.String))


def generate(folder: Path, *arguments: str) -> Generated:
    main([str(folder), "--replace", *SMALL, *arguments])
    return Generated(folder)


@pytest.fixture(params=["kineto", "run"])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generated:
    """Every kind of group, gradients in shards, two hosts."""
    arguments = ["--form", request.param, "--layout", "2x2x2", "--ranks-per-host", "4", "--shard"]
    folder = once(tmp_path_factory, f"job-{request.param}", lambda folder: main([str(folder), *SMALL, *arguments]))
    return Generated(folder)


def test_steps_and_their_phases_are_those_of_the_truth(job: Generated) -> None:
    frames = [step_times(trace).with_columns(rank=pl.lit(trace.rank, dtype=pl.Int64)) for trace in job.run.traces]
    both = pl.concat(frames).join(job.steps, on=["rank", "step"], suffix="_true")
    assert both.height == job.steps.height == 16
    pairs = {"duration_ns": "duration_ns_true", "data_wait_ns": "data_ns", "optimizer_ns": "optimizer_ns_true"}
    pairs |= {"forward_ns": "forward_ns_true", "backward_ns": "backward_ns_true"}
    for name, true in pairs.items():
        assert both[name].to_list() == both[true].to_list(), name
    assert (both["start_ns"] - job.truth["start_ns"]).to_list() == both["start_ns_true"].to_list()
    assert both["forward_ns"].min() > 100_000


def test_waiting_and_moving_are_those_of_the_truth(job: Generated) -> None:
    found = job.run.arrivals().drop("bytes")
    true = job.messages.filter(pl.col("peer").is_null())
    both = found.join(true, on=["step", "group", "operation", "number", "rank"], suffix="_true")
    assert both.height == true.height == found.height
    # over all ranks, over data and over tensor parallelism
    assert set(both["operation"]) == {"allreduce", "allgather", "reducescatter"}
    assert both["wait_ns"].to_list() == both["wait_ns_true"].to_list()
    assert both["transfer_ns"].to_list() == both["transfer_ns_true"].to_list()
    last = both.filter(pl.col("place") == pl.col("place").max().over("step", "group", "operation", "number"))
    assert last["wait_ns_true"].to_list() == [0] * last.height
    assert both["wait_ns"].max() > 50_000


def test_messages_between_stages_are_those_of_the_truth(job: Generated) -> None:
    columns = ["rank", "operation", "start_ns", "end_ns", "peer", "group", "bytes"]
    frames = [
        trace.required("communication")
        .filter(pl.col("kind").cast(pl.String) != COLLECTIVE)
        .with_columns(pl.col("operation", "group").cast(pl.String), pl.col("peer").cast(pl.Int64), rank=pl.lit(trace.rank))
        .select(pl.col("rank").cast(pl.Int64), *columns[1:])
        .collect()
        for trace in job.run.traces
    ]
    shown = pl.col("arrival_ns") + job.truth["start_ns"], pl.col("leave_ns") + job.truth["start_ns"]
    true = job.messages.drop_nulls("peer").with_columns(start_ns=shown[0], end_ns=shown[1]).select(columns)
    # forward and backward of three micro-batches on eight ranks, two steps
    assert true.height == 96
    assert pl.concat(frames).sort(columns).equals(true.sort(columns))


def test_nobody_leaves_before_the_last_has_arrived(job: Generated) -> None:
    assert (job.messages["wait_ns"] >= 0).all()
    assert (job.messages["transfer_ns"] > 0).all()


def test_work_is_linked_to_its_operators(job: Generated) -> None:
    for trace in job.run.traces:
        kernels = trace.required("kernels").collect()
        assert kernels["op"].null_count() == 0
        assert kernels["step"].null_count() == 0
        names = kernels.select("op").join(trace.required("ops").select("id", "name").collect(), left_on="op", right_on="id")[
            "name"
        ]
        assert {"aten::addmm", "aten::mm", "record_param_comms", "aten::_fused_adamw_"} <= set(names.cast(pl.String))
        flows = trace.required("flows").collect()["kind"].cast(pl.String)
        assert set(flows) == {"ac2g", "fwdbwd"}


def test_a_sound_job_has_no_findings(tmp_path: Path) -> None:
    for form in ("run", "kineto"):
        job = generate(tmp_path / form, "--form", form, "--layout", "2x1x2")
        assert job.run.health().filter(pl.col("severity") != "info").rows() == []
        assert [trace.rank for trace in job.run.traces] == [0, 1, 2, 3]


def test_ranks_that_are_missing_have_no_files(tmp_path: Path) -> None:
    job = generate(tmp_path, "--layout", "4x1x1", "--fault", "missing_ranks:ranks=1+3", "--gzip")
    assert [trace.rank for trace in job.run.traces] == [0, 2]
    assert "missing_ranks" in job.run.health()["check"].to_list()
    assert job.truth["faults"] == [{"kind": "missing_ranks", "ranks": [1, 3]}]
    assert set(job.steps["rank"]) == {0, 1, 2, 3}


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    written = {}
    for name, seed in (("a", "7"), ("b", "7"), ("c", "8")):
        main([str(tmp_path / name), "--layout", "2x1x1", *SMALL, "--seed", seed])
        written[name] = {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.json")}
    assert len(written["a"]) == 3
    assert written["a"] == written["b"] != written["c"]


def test_files_get_the_size_that_is_asked_for(tmp_path: Path) -> None:
    main([str(tmp_path), "--layout", "2x1x1", "--bytes-per-rank", "3MB", "--steps", "1"])
    for path in tmp_path.glob("*.pt.trace.json"):
        assert path.stat().st_size == pytest.approx(3_000_000, rel=0.1)


def test_layouts() -> None:
    assert choose_layout(1) == Layout(1, 1, 1)
    assert choose_layout(8) == Layout(2, 4, 1)
    assert choose_layout(64) == Layout(2, 4, 8)
    assert choose_layout(1024) == Layout(16, 8, 8)
    for ranks in (1, 2, 3, 6, 7, 12, 96, 100, 10_000):
        assert choose_layout(ranks).ranks == ranks
    layout = parse_layout("2x3x4", 24)
    groups = [group for rank in range(24) for group in layout.groups_of(rank)]
    # a number is one group, whoever names it
    assert len({(group.number, group.ranks) for group in groups}) == len({group.number for group in groups}) == 1 + 12 + 6 + 8
    with pytest.raises(ValueError, match="24 ranks, not 8"):
        parse_layout("2x3x4", 8)


def test_the_stored_noise_is_that_of_the_published_job() -> None:
    found = quantiles_of(shared("parallel_jobs", "trace-ST.parquet"))
    stored = {name: points.tolist() for name, points in stored_noise().quantiles.items()}
    assert found == stored
    assert all(abs(points[50] - 1) < 0.02 for points in stored.values())
