"""Communication by kind of group, hidden and exposed: by hand, in a generated job, and it adds up to the figures of steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from benchmarks.jobs.__main__ import main
from benchmarks.jobs.layout import Layout
from benchmarks.jobs.truth import MESSAGES

import steplens
from steplens.analysis.cluster.groups.group_overlap import group_overlap
from steplens.analysis.steps.times import step_times
from steplens.analysis.tools.overlap import merge_intervals
from steplens.trace.trace import Trace

from ..shared_data import shared
from ..writers.builder import BASE_NS, build, kernel

MS = 1_000_000
GROUPS = {"g1": {"group_name": "tp", "group_rank": 0, "global_ranks": [0, 1]},
          "g2": {"group_name": "dp", "group_rank": 0, "global_ranks": [0, 2]}}  # fmt: skip


def adds_up(traces: list[Trace]) -> int:
    """Whether parts are those of the steps, of how many rows."""
    sums = group_overlap(traces, "step").group_by("rank", "step").agg(pl.col("overlapped_ns", "exposed_ns").sum())
    steps = pl.concat([step_times(trace).with_columns(rank=pl.lit(trace.rank, dtype=pl.Int64)) for trace in traces])
    both = steps.filter(pl.col("exposed_communication_ns").is_not_null()).join(sums, on=["rank", "step"], how="left")
    assert both["exposed_ns"].fill_null(0).to_list() == both["exposed_communication_ns"].to_list()
    assert both["overlapped_ns"].fill_null(0).to_list() == both["overlapped_communication_ns"].to_list()
    return both.height


def by_hand(*operations: tuple[str, str, int, int], **meta: Any) -> Trace:
    """A step of 100 ms that computes for the first 10 and for the last 10 ms; operations: group, kind, begin and end, ms."""
    kernels = [
        {**kernel("mm", 0, 1, core="CUDA"), "start_ns": BASE_NS + start * MS, "end_ns": BASE_NS + (start + 10) * MS, "step": 1,
         "stream": 7, "launch_ns": BASE_NS, "correlation": start + 1}
        for start in (0, 90)
    ]  # fmt: skip
    communication = [
        {"name": "hcom_x", "kind": kind, "operation": "allreduce", "group": group, "step": 1, "start_ns": BASE_NS + begin * MS,
         "end_ns": BASE_NS + end * MS, "launch_ns": BASE_NS}
        for group, kind, begin, end in operations
    ]  # fmt: skip
    steps = [{"id": 1, "start_ns": BASE_NS, "end_ns": BASE_NS + 100 * MS, "pid": 1, "tid": 1}]
    values = {"rank": 0, "world_size": 4, "parallel_group_info": GROUPS, **meta}
    return build(meta=values, steps=steps, kernels=kernels, communication=communication)


def test_several_kinds_at_once_count_for_one() -> None:
    trace = by_hand(
        # beside computing until 10; together with data from 15 to 20
        ("g1", "collective", 5, 20), ("g2", "collective", 15, 30), ("g2", "collective", 25, 40),
        # of a group that nobody described
        ("unknown", "collective", 35, 45), ("unknown", "send", 50, 60),
    )  # fmt: skip
    found = {row["kind"]: row for row in group_overlap([trace], "step").iter_rows(named=True)}
    figures = ("operations", "in_flight_ns", "communication_ns", "overlapped_ns", "exposed_ns")
    assert {kind: tuple(row[name] for name in figures) for kind, row in found.items()} == {
        "tensor": (1, 15 * MS, 15 * MS, 5 * MS, 10 * MS),
        "pipeline": (1, 10 * MS, 10 * MS, 0, 10 * MS),
        "data": (2, 25 * MS, 20 * MS, 0, 20 * MS),
        "": (1, 10 * MS, 5 * MS, 0, 5 * MS),
    }
    assert found["tensor"]["exposed_percent"] == pytest.approx(200 / 3)
    assert adds_up([trace]) == 1
    # of a step of a rank, and of all ranks
    assert group_overlap([trace], "rank")["exposed_ns"].to_list() == [10 * MS, 10 * MS, 20 * MS, 5 * MS]
    assert group_overlap([trace])["exposed_ns"].to_list() == [10 * MS, 10 * MS, 20 * MS, 5 * MS]


def test_a_generated_job(tmp_path: Path) -> None:
    """When anything of a kind was in flight, to the ns; and all kinds together are the figures of the steps."""
    small = ["--layers", "1", "--operators-per-layer", "3", "--batches", "2", "--steps", "2", "--seed", "5", "--shard"]
    main([str(tmp_path), *small, "--layout", "2x2x2", "--ranks-per-host", "4"])
    traces = steplens.open(tmp_path).traces
    assert adds_up(traces) == 16
    layout, true = Layout(2, 2, 2, 4), pl.read_parquet(tmp_path / MESSAGES)
    found = group_overlap(traces, "step").group_by("rank", "kind").agg(pl.col("in_flight_ns", "operations").sum())
    for rank, kind, in_flight, operations in found.iter_rows():
        groups = {"all": layout.everybody, "data": layout.data_group(rank), "tensor": layout.tensor_group(rank),
                  "pipeline": layout.pipeline_group(rank)}  # fmt: skip
        of_kind = true.filter(pl.col("rank") == rank, pl.col("group") == groups[kind].number)
        assert operations == of_kind.height
        assert in_flight == merge_intervals(of_kind["arrival_ns"].to_numpy(), of_kind["leave_ns"].to_numpy()).length_ns
    assert found.height == 32
    # means over all ranks and steps
    means = group_overlap(traces).filter(kind="tensor").row(0, named=True)
    assert means["in_flight_ns"] == found.filter(kind="tensor")["in_flight_ns"].sum() / 16


@pytest.mark.parametrize("name", [("ascend_pytorch", "text_level1"), ("kineto", "cuda_nccl_distributed.json.gz")])
def test_of_real_captures_it_adds_up_to_the_steps_and_to_the_overlap_of_the_whole(name: tuple[str, str]) -> None:
    run = steplens.open(shared(*name))
    assert adds_up(run.traces) > 0
    # all communication of these lies in steps
    whole = run.overlap().select(pl.col("communication_ns", "overlapped_ns").sum()).row(0)
    assert run.group_overlap("step").select(pl.col("communication_ns", "overlapped_ns").sum()).row(0) == whole
    assert set(run.group_overlap()["kind"]) == {"data"}
