"""The largest idle gaps of a job: in a generated job with a late rank, and that all of them are the idle time of the steps."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from benchmarks.jobs.__main__ import main
from benchmarks.jobs.clocks import START_NS
from benchmarks.jobs.truth import MESSAGES

import steplens
from steplens.analysis.cluster.over_ranks import rank_gaps as rank_gaps_module
from steplens.analysis.cluster.over_ranks.idle_gaps import idle_gaps
from steplens.analysis.cluster.over_ranks.rank_gaps import MOST_GAPS, rank_gaps
from steplens.analysis.device.idle import idle_causes
from steplens.trace.schema import SCOPE_FUNCTION
from steplens.trace.trace import Trace

from ..shared_data import shared
from ..writers.builder import BASE_NS, build, kernel

MS = 1_000_000


def test_a_rank_that_sleeps_idles_and_the_others_wait_for_it(tmp_path: Path) -> None:
    small = ["--layers", "1", "--operators-per-layer", "3", "--batches", "2", "--steps", "3", "--seed", "5"]
    main([str(tmp_path), *small, "--layout", "4x1x1", "--fault", "slow_rank:rank=2,what=host,ms=20"])
    found = idle_gaps(steplens.open(tmp_path).traces)
    true = pl.read_parquet(tmp_path / MESSAGES)
    for step in true["step"].unique().sort().to_list()[:-1]:
        # in front of its optimizer step it sleeps while nothing is launched
        asleep = found.filter(pl.col("step") == step, pl.col("rank") == 2, pl.col("cause") == "python").row(0, named=True)
        assert asleep["idle_ns"] >= 20 * MS and asleep["late_rank"] is None
        # the others have that gap as well, and it is short
        assert asleep["ranks"] == 4 and asleep["median_ns"] < MS
        assert asleep["cause_ns"] == pytest.approx(20 * MS, abs=MS)
    waits = found.filter(cause="late rank")
    assert waits["late_rank"][0] == 2
    # every wait ends, to the ns, when the last rank truly came, and began when nothing computed beside it any more
    for row in waits.iter_rows(named=True):
        operation, group = row["name"].split()
        message = (pl.col("step") == row["step"]) & (pl.col("group") == int(group)) & (pl.col("number") == row["number"])
        of_message = true.filter(message, pl.col("operation").str.replace_all("_", "") == operation)
        last = of_message.sort("arrival_ns", "rank").row(-1, named=True)
        assert last["rank"] == row["late_rank"]
        assert row["start_ns"] - START_NS + row["idle_ns"] == last["arrival_ns"]
        assert row["idle_ns"] <= of_message.filter(rank=row["rank"])["wait_ns"][0]
    largest = waits.row(0, named=True)
    assert largest["idle_ns"] > 15 * MS and largest["ranks"] == 3


def test_all_gaps_together_are_the_idle_time_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_gaps_module, "MOST_GAPS", 1 << 20)
    for trace in steplens.open(shared("ascend_pytorch", "text_level1")).traces:
        gaps = rank_gaps(trace)
        idle = dict(idle_causes(trace).group_by("step").agg(pl.col("idle_ns").sum()).iter_rows())
        assert dict(gaps.group_by("step").agg(pl.col("idle_ns").sum()).iter_rows()) == idle
        assert (gaps["cause_ns"] <= gaps["idle_ns"]).all() and gaps.height > 100


def test_so_many_of_a_step_are_kept() -> None:
    gaps = rank_gaps(steplens.open(shared("ascend_pytorch", "text_level1")).trace())
    assert gaps.height == MOST_GAPS


def one_rank(rank: int, shift: int) -> Trace:
    """A step with a gap of 30 ms between two kernels, in which the host runs an operator, and one of 10 ms."""
    begin = BASE_NS + shift * MS
    rows = [("gemm", 0, 10), ("relu", 40, 50), ("gemm", 60, 70)]
    kernels = [
        {**kernel(name, 0, 1, core="CUDA"), "start_ns": begin + start * MS, "end_ns": begin + end * MS, "step": 1, "stream": 7,
         "launch_ns": begin + max(start - 1, 0) * MS, "correlation": number}
        for number, (name, start, end) in enumerate(rows)
    ]  # fmt: skip
    ops = [
        {"name": "aten::slow", "start_ns": begin + 11 * MS, "end_ns": begin + 38 * MS, "pid": 1, "tid": 1,
         "scope": SCOPE_FUNCTION, "depth": 0, "id": 0, "step": 1}
    ]  # fmt: skip
    steps = [{"id": 1, "start_ns": begin, "end_ns": begin + 80 * MS, "pid": 1, "tid": 1}]
    return build(meta={"rank": rank, "world_size": 2}, steps=steps, kernels=kernels, ops=ops)


def test_the_same_gap_of_several_ranks_is_one_row() -> None:
    found = idle_gaps([one_rank(0, 0), one_rank(1, 3)])
    first, second = found.rows(named=True)
    assert (first["before"], first["after"], first["ranks"], first["idle_ns"], first["total_ns"]) == (
        "gemm",
        "relu",
        2,
        30 * MS,
        60 * MS,
    )
    assert (first["cause"], first["name"], first["cause_ns"]) == ("calls", "aten::slow", 27 * MS)
    assert (second["before"], second["after"], second["idle_ns"]) == ("relu", "gemm", 10 * MS)
