"""Every fault of a generated job is in what happened, as large as its record says, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from benchmarks.jobs.__main__ import main
from benchmarks.jobs.faults import parse_faults
from benchmarks.jobs.layout import Layout
from benchmarks.jobs.network import OUTSIDE_LATENCY_NS, Network
from benchmarks.jobs.noise import stored_noise
from benchmarks.jobs.program import Kernel, Model, stage_program
from benchmarks.jobs.simulation import Job
from benchmarks.jobs.truth import STEPS, Truth

import steplens
from steplens.analysis.steps.times import step_times

#: two hosts, which pipeline stages share
LAYOUT = Layout(data=4, pipeline=2, tensor=1, ranks_per_host=4)
MODEL = Model(layers=1, operators_per_layer=4, batches=2)


def happened(*faults: str, layout: Layout = LAYOUT) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The steps, the messages, and how long the work of each call took, of a job with faults."""
    found = parse_faults(list(faults), layout, 3, 0)
    programs = [stage_program(MODEL, layout, stage) for stage in range(layout.pipeline)]
    truth, work = Truth(layout), []
    for step, times in enumerate(Job(layout, programs, found, stored_noise(), seed=3).steps(3)):
        truth.add(step, times)
        for stage in times:
            for row, call in enumerate(stage.program.calls):
                if isinstance(call.work, Kernel):
                    about = {"step": step, "row": row, "operator": call.work.operator, "direction": call.work.direction}
                    took = stage.work_end[row] - stage.work_begin[row]
                    work.append(pl.DataFrame({**about, "rank": stage.ranks, "took_ns": took}))
    return pl.concat(truth.steps), pl.concat(truth.messages), pl.concat(work)


def factors(*faults: str) -> pl.DataFrame:
    """Work with and without faults: the same noise, so that the ratio is the fault's alone."""
    (_, _, faulty), (_, _, sound) = happened(*faults), happened()
    both = faulty.join(sound, on=["step", "row", "rank"], suffix="_sound")
    return both.with_columns(ratio=pl.col("took_ns") / pl.col("took_ns_sound"))


def slower(rows: pl.DataFrame, factor: float) -> set[int]:
    """The ranks whose work takes so many times as long; that of the others takes as long as before."""
    some = rows.group_by("rank").agg(pl.col("ratio").min(), most=pl.col("ratio").max())
    slow = some.filter(pl.col("ratio") > 1.01)
    assert slow["ratio"].to_list() == pytest.approx([factor] * slow.height, rel=1e-3)
    assert slow["most"].to_list() == pytest.approx([factor] * slow.height, rel=1e-3)
    assert some.filter(pl.col("ratio") <= 1.01)["most"].to_list() == [1.0] * (some.height - slow.height)
    return set(slow["rank"])


def test_a_slow_rank() -> None:
    rows = factors("slow_rank:rank=5,factor=1.5")
    computing = pl.col("direction").is_in(["forward", "backward"])
    assert slower(rows.filter(computing), 1.5) == {5}
    steps, messages, _ = happened("slow_rank:rank=5,factor=1.5")
    # it is the one whom its group waits for
    group = messages.filter(pl.col("rank").is_in([4, 5, 6, 7]), operation="allreduce").filter(pl.col("bytes") > 4)
    assert set(group.filter(wait_ns=0)["rank"]) == {5}
    sound, _, _ = happened()
    assert steps["duration_ns"].mean() > 1.1 * sound["duration_ns"].mean()


@pytest.mark.parametrize("part", ["forward", "backward"])
def test_a_rank_that_is_slow_in_a_part(part: str) -> None:
    rows = factors(f"slow_rank:rank=2,factor=2,what={part}")
    assert slower(rows.filter(direction=part), 2) == {2}
    assert slower(rows.filter(pl.col("direction") != part), 2) == set()


def test_a_rank_with_a_slow_operator() -> None:
    rows = factors("slow_rank:rank=0,factor=3,what=aten::mm")
    assert slower(rows.filter(operator="aten::mm"), 3) == {0}
    assert slower(rows.filter(pl.col("operator") != "aten::mm"), 3) == set()


def test_a_host_that_sleeps() -> None:
    (steps, messages, _), (sound, _, _) = happened("slow_rank:rank=6,what=host,ms=15"), happened()
    key = ["rank", "step"]
    longer = steps.join(sound, on=key, suffix="_sound").with_columns(by=pl.col("duration_ns") - pl.col("duration_ns_sound"))
    # in the first step its sleep comes behind the last collective; from the second on all wait for it
    assert longer.filter(step=0).filter(pl.col("by") > 14_000_000)["rank"].to_list() == [6]
    assert longer.filter(step=1)["by"].min() > 10_000_000
    last = messages.filter(operation="allreduce", bytes=4, step=1).filter(pl.col("wait_ns") == 0)
    assert last.height == 1


def test_a_slow_host_and_an_imbalanced_stage() -> None:
    computing = pl.col("direction").is_in(["forward", "backward"])
    assert slower(factors("slow_host:host=1,factor=1.3").filter(computing), 1.3) == {4, 5, 6, 7}
    assert slower(factors("imbalanced_stage:stage=0,factor=1.4").filter(computing), 1.4) == {0, 1, 2, 3}


def test_a_slow_host_link_slows_what_leaves_the_host() -> None:
    # groups of data parallelism span both hosts, stages do not
    layout = Layout(data=8, pipeline=1, tensor=1, ranks_per_host=4)
    (_, messages, _), (_, sound, _) = happened("slow_link:host=1,factor=8", layout=layout), happened(layout=layout)
    large = (pl.col("operation") == "allreduce") & (pl.col("bytes") > 4)
    ratio = (messages.filter(large)["transfer_ns"] - OUTSIDE_LATENCY_NS).median() / (
        sound.filter(large)["transfer_ns"] - OUTSIDE_LATENCY_NS
    ).median()
    assert ratio == pytest.approx(8, rel=0.05)
    inside = Layout(data=2, pipeline=2, tensor=2, ranks_per_host=4)
    network = Network(inside, parse_faults(["slow_link:host=1,factor=8"], inside, 1, 0))
    assert network.bandwidth((4, 6)) == network.bandwidth((0, 2)) == 8 * network.bandwidth((0, 4)) * 8


def test_a_slow_link_between_two_ranks() -> None:
    (_, messages, _), (_, sound, _) = happened("slow_link:a=1,b=5,factor=10"), happened()
    both = messages.join(sound, on=["step", "group", "operation", "number", "rank"], suffix="_sound")
    both = both.drop_nulls("peer").with_columns(ratio=pl.col("transfer_ns") / pl.col("transfer_ns_sound"))
    slow = both.filter(pl.col("ratio") > 2)
    assert set(slow["rank"]) == {1, 5}
    assert both.filter(pl.col("rank").is_in([1, 5]))["ratio"].min() > 5


@pytest.mark.parametrize(
    ("fault", "offset_ns", "drift", "stepped_ns"),
    [
        ("clock_offset:host=1,seconds=-0.25", -250_000_000, 0.0, 0),
        ("clock_drift:rank=3,ppm=50", 0, 50e-6, 0),
        ("clock_step:host=1,seconds=0.5,step=1", 0, 0.0, 500_000_000),
    ],
)
def test_clocks(tmp_path: Path, fault: str, offset_ns: int, drift: float, stepped_ns: int) -> None:
    main([str(tmp_path), "--layout", "4x1x1", "--ranks-per-host", "2", "--steps", "3", "--layers", "1", "--fault", fault])
    true = pl.read_parquet(tmp_path / STEPS)
    for trace in steplens.open(tmp_path).traces:
        # 2026-01-05
        shown = step_times(trace)["start_ns"] - 1_767_571_200_000_000_000
        times = true.filter(rank=trace.rank)["start_ns"]
        beside = (shown - times).to_list()
        if trace.rank < 2:
            assert beside == [0, 0, 0]
        else:
            expected = [offset_ns + drift * time for time in times]
            assert beside == pytest.approx([expected[0], expected[1], expected[2] + stepped_ns], abs=1)


def test_what_is_not_given_is_drawn_from_the_seed() -> None:
    kinds = ["slow_rank", "slow_link", "slow_host", "imbalanced_stage", "clock_offset", "clock_drift", "clock_step", "none"]
    drawn = [parse_faults([*kinds, "missing_ranks"], LAYOUT, 3, seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert [fault.kind for fault in drawn[0]] == [*kinds[:-1], "missing_ranks"]


@pytest.mark.parametrize(
    "text", ["slow", "slow_rank:rank=8", "slow_rank:what=aten::nothing", "slow_host:ms=3", "slow_host:host=x"]
)
def test_faults_that_there_are_not(text: str) -> None:
    with pytest.raises(ValueError, match=r"no fault|there is no number|nothing is called|has no|invalid literal"):
        parse_faults([text], LAYOUT, 3, 0)
