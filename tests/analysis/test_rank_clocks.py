"""Clocks of ranks against programs whose clocks are known: simulated jobs, and real gloo jobs whose times are moved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

import steplens
from steplens.analysis.cluster.clocks.bounds import MESSAGES
from steplens.analysis.cluster.clocks.clock import Clocks, find_clocks
from steplens.analysis.cluster.clocks.job_clocks import find_clock_trouble, rank_clocks
from steplens.analysis.cluster.clocks.messages import clock_bounds, message_sides

from ..warm_python import run_warm_ranks
from ..writers.builder import BASE_NS, build

S = 10**9
MS = 1_000_000
Times = npt.NDArray[np.int64]


@dataclass
class Truth:
    """What each rank's clock says at a true time: ahead, fast by some parts, and set once (never: an infinite time)."""

    offset_ns: npt.NDArray[np.float64]
    drift: npt.NDArray[np.float64]
    set_at_ns: npt.NDArray[np.float64]
    set_by_ns: npt.NDArray[np.float64]

    @classmethod
    def drawn(cls, ranks: int, numbers: np.random.Generator, length_ns: float, *, are_set: tuple[int, ...] = ()) -> Truth:
        """Ahead by up to 10 s, fast by up to 100 ppm; some clocks are set by up to 2 s in the middle part of the time."""
        truth = cls(
            numbers.uniform(-10 * S, 10 * S, ranks), numbers.uniform(-1e-4, 1e-4, ranks), np.full(ranks, np.inf), np.zeros(ranks)
        )
        for rank in are_set:
            truth.set_at_ns[rank] = numbers.uniform(0.3, 0.7) * length_ns
            truth.set_by_ns[rank] = numbers.uniform(0.1, 2) * S * numbers.choice([-1, 1])
        return truth

    def own(self, rank: npt.NDArray[np.int64], true_ns: Times) -> Times:
        """The times on the clocks of the ranks."""
        since = true_ns - BASE_NS
        was_set = np.where(since > self.set_at_ns[rank], self.set_by_ns[rank], 0)
        return np.asarray(true_ns + np.round(self.offset_ns[rank] + self.drift[rank] * since + was_set).astype(np.int64))

    def moved(self, parts: pl.DataFrame) -> pl.DataFrame:
        """Sides of messages with the times that these clocks would have given, and ``true_ns``, when each arrived."""
        rank = parts["rank"].to_numpy()
        own = {name: self.own(rank, parts[name].to_numpy()) for name in ("arrival_ns", "leave_ns")}
        return parts.with_columns(**{name: pl.Series(times) for name, times in own.items()}, true_ns=pl.col("arrival_ns"))


def simulated(groups: list[list[int]], rounds: int, numbers: np.random.Generator, *, length_ns: int = 10 * S) -> pl.DataFrame:
    """All-reduces of groups at true times: each rank comes up to some milliseconds late, all leave soon after the last has
    come."""
    rows: list[tuple[int, str, int, int, int]] = []
    for turn in range(rounds):
        for group, ranks in enumerate(groups):
            arrivals = BASE_NS + turn * length_ns // rounds + np.round(numbers.gamma(2, 2 * MS, len(ranks))).astype(int)
            leaves = arrivals.max() + 80_000 + np.round(numbers.exponential(40_000, len(ranks))).astype(int)
            sides = zip(ranks, arrivals.tolist(), leaves.tolist(), strict=True)
            rows += [(group * rounds + turn, str(group), rank, arrival, leave) for rank, arrival, leave in sides]
    parts = pl.DataFrame(rows, schema=["message", "group", "rank", "arrival_ns", "leave_ns"], orient="row")
    return parts.with_columns(is_awaited=pl.lit(True), has_waited=pl.lit(True)).select(
        pl.col(n).cast(t) for n, t in MESSAGES.items()
    )


def beyond_the_bar(found: Clocks, parts: pl.DataFrame, truth: Truth) -> pl.DataFrame:
    """How far from the truth each arrival is when it was put on one clock (``off_ns``), beside the bar that was given
    (``error_ns``)."""
    placed = parts.join(found.parts, on=["message", "rank"]).join(found.pieces, on=["rank", "piece"])
    added = pl.col("offset_ns") + pl.col("drift_ppm") / 1e6 * (pl.col("arrival_ns") - pl.col("first_message_ns"))
    reference = placed["reference"].to_numpy()
    on_reference = truth.own(reference, placed["true_ns"].to_numpy())
    return placed.with_columns(off_ns=(pl.col("arrival_ns") + added.round().cast(pl.Int64) - pl.Series(on_reference)).abs())


def received_before_sent(found: Clocks, parts: pl.DataFrame) -> int:
    """Sides of messages that are left, on one clock, before the last rank has arrived."""
    placed = parts.join(found.parts, on=["message", "rank"]).join(found.pieces, on=["rank", "piece"])
    for name in ("arrival_ns", "leave_ns"):
        added = pl.col("offset_ns") + (pl.col("drift_ppm") / 1e6 * (pl.col(name) - pl.col("first_message_ns"))).round().cast(
            pl.Int64
        )
        placed = placed.with_columns((pl.col(name) + added).alias(f"common_{name}"))
    last = pl.col("common_arrival_ns").filter("is_awaited").max().over("message")
    return placed.filter(pl.col("has_waited") & (pl.col("common_leave_ns") < last)).height


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("seed", range(10))
def test_the_truth_lies_inside_the_bar(ranks: int, seed: int) -> None:
    """Ahead by seconds, drifting, and in every second case one clock is set on the way."""
    numbers = np.random.default_rng([ranks, seed])
    set_rank = int(numbers.integers(1, ranks))
    truth = Truth.drawn(ranks, numbers, 10 * S, are_set=(set_rank,) if seed % 2 else ())
    parts = truth.moved(simulated([[*range(ranks)]], 120, numbers))
    found = find_clocks(parts)
    pieces = dict(found.pieces.group_by("rank").len().iter_rows())
    assert pieces == {rank: 2 if seed % 2 and rank == set_rank else 1 for rank in range(ranks)}
    placed = beyond_the_bar(found, parts, truth)
    assert placed.height > 0.9 * parts.height
    assert placed.filter(pl.col("off_ns") <= pl.col("error_ns")).height >= 0.95 * placed.height
    assert received_before_sent(found, parts) == 0 and found.broken == 0 and found.contradictions == ()
    # transfers take 80 us and some tens more
    assert placed.filter(pl.col("rank") > 0)["error_ns"].median() < 400_000


@pytest.mark.parametrize("by_ns", [-1.5 * S, 0.4 * S])
def test_a_clock_that_was_set_is_found_and_said(by_ns: float) -> None:
    truth = Truth(np.zeros(4), np.zeros(4), np.array([np.inf, np.inf, 5.0 * S, np.inf]), np.array([0, 0, by_ns, 0]))
    parts = truth.moved(simulated([[0, 1, 2, 3]], 200, np.random.default_rng(3)))
    found = find_clocks(parts)
    before, after = found.pieces.filter(rank=2).rows(named=True)
    assert before["offset_ns"] - after["offset_ns"] == pytest.approx(by_ns, abs=2 * MS)
    rows = {rank: [] for rank in range(4)}  # type: ignore[var-annotated]
    for row in parts.iter_rows(named=True):
        rows[row["rank"]].append(
            {"name": "all", "operation": "allreduce", "kind": "collective", "group": "0", "step": row["message"],
             "start_ns": row["arrival_ns"], "end_ns": row["leave_ns"]}
        )  # fmt: skip
    traces = [build(meta={"rank": rank, "world_size": 4}, communication=rows[rank]) for rank in range(4)]
    (trouble,) = find_clock_trouble(traces)
    direction = "forward" if by_ns > 0 else "back"
    assert trouble.check == "rank_clock_set" and f"the clock of rank 2 was set {direction} by" in trouble.message
    assert rank_clocks(traces)["rank"].to_list() == [0, 1, 2, 2, 3]


def test_groups_that_share_no_rank_are_not_compared() -> None:
    truth = Truth.drawn(4, np.random.default_rng(0), 10 * S)
    found = find_clocks(truth.moved(simulated([[0, 1], [2, 3]], 50, np.random.default_rng(1))))
    assert dict(found.pieces.select("rank", "reference").iter_rows()) == {0: 0, 1: 0, 2: 2, 3: 2}
    assert found.error_between(0, 1) is not None and found.error_between(2, 3) is not None
    assert found.error_between(0, 2) is None and found.error_between(1, 3) is None


def test_messages_of_one_direction_bound_nothing_from_the_other_side() -> None:
    """Rank 0 sends and rank 1 receives: that its clock is hours ahead nobody can rule out."""
    parts = simulated([[0, 1]], 50, np.random.default_rng(1))
    sent = parts.with_columns(is_awaited=pl.col("rank") == 0, has_waited=pl.col("rank") == 1)
    found = find_clocks(sent)
    assert found.pieces.filter(rank=1)["error_ns"].to_list() == [None]
    assert found.error_between(0, 1) is None
    # ranks of one host read one clock
    assert find_clocks(sent, {0: "host", 1: "host"}).error_between(0, 1) == 1_000


def test_clocks_that_agree_are_left_as_they_were_recorded() -> None:
    parts = simulated([[0, 1, 2], [1, 2, 3]], 50, np.random.default_rng(5))
    assert find_clocks(parts).pieces.select("offset_ns", "drift_ppm").sum().row(0) == (0, 0.0)
    truth = Truth(np.array([0, 0, 5.0 * S, 0]), np.zeros(4), np.full(4, np.inf), np.zeros(4))
    found = find_clocks(truth.moved(parts)).pieces
    assert found.filter(offset_ns=0)["rank"].to_list() == [0, 1, 3]
    assert found.filter(rank=2)["offset_ns"].item() == pytest.approx(-5 * S, abs=MS)


def test_ranks_of_one_host_go_by_one_clock_unless_their_messages_deny_it() -> None:
    parts = simulated([[0, 1, 2, 3]], 100, np.random.default_rng(2))
    hosts = {0: "a", 1: "a", 2: "b", 3: "b"}
    truth = Truth(np.array([0, 0, 3.0 * S, 3.0 * S]), np.zeros(4), np.full(4, np.inf), np.zeros(4))
    found = find_clocks(truth.moved(parts), hosts)
    assert found.separate_hosts == () and found.error_between(2, 3) == 1_000
    two, three = found.pieces.filter(pl.col("rank") > 1)["offset_ns"].to_list()
    assert abs(two - three) <= 2_000 and two == pytest.approx(-3 * S, abs=MS)
    truth.offset_ns[3] = 0
    found = find_clocks(truth.moved(parts), hosts)
    assert found.separate_hosts == ("b",) and found.error_between(2, 3) > 1_000  # type: ignore[operator]


def test_messages_that_are_not_the_same_contradict_each_other() -> None:
    """Rank 1 lost every third of its messages, so that others are paired: nothing is claimed from that."""
    parts = simulated([[0, 1]], 90, np.random.default_rng(4))
    one = (
        parts.filter(rank=1, message=pl.col("message"))
        .filter(pl.col("message") % 3 != 0)
        .with_columns(message=pl.int_range(pl.len(), dtype=pl.Int64))
    )
    found = find_clocks(pl.concat([parts.filter(pl.col("rank") == 0, pl.col("message") < one.height), one]))
    assert found.error_between(0, 1) is None
    assert [pair[:2] for pair in found.contradictions][:1] == [(0, 1)]


def test_a_thousand_ranks() -> None:
    """Groups of 8 beside each other and across: no pair of most ranks ever meets, and their clocks are known."""
    numbers = np.random.default_rng(6)
    ranks = 1024
    groups = [[*range(start, start + 8)] for start in range(0, ranks, 8)] + [[*range(start, ranks, 8)] for start in range(8)]
    truth = Truth.drawn(ranks, numbers, 10 * S)
    parts = truth.moved(simulated(groups, 30, numbers))
    found = find_clocks(parts)
    placed = beyond_the_bar(found, parts, truth)
    assert found.pieces.height == ranks and found.pieces["reference"].unique().to_list() == [0]
    assert placed.filter(pl.col("off_ns") <= pl.col("error_ns")).height >= 0.95 * placed.height
    assert received_before_sent(found, parts) == 0


PROGRAM = """
import os, random, sys, torch, torch.distributed as dist, steplens

dist.init_process_group("gloo")
torch.set_num_threads(1)
numbers = random.Random(dist.get_rank())
model = torch.nn.Linear(64, 64)
with steplens.profile(
    schedule=steplens.schedule(wait=0, warmup=2, active=30, repeat=1),
    on_trace_ready=steplens.tensorboard_trace_handler(sys.argv[1], analyse_flag=False),
) as prof:
    for _ in range(33):
        for _ in range(4):
            for _ in range(numbers.randrange(3)):
                model(torch.randn(64, 64)).sum().backward()
            dist.all_reduce(torch.ones(16))
        prof.step()
dist.barrier()
dist.destroy_process_group()
os._exit(0)
"""


@pytest.mark.parametrize("ranks", [pytest.param(4, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.long)])
def test_real_jobs_whose_clocks_are_moved(tmp_path: Path, ranks: int) -> None:
    """What gloo ranks recorded on one clock, as clocks that are ahead, drift and are set would have recorded it."""
    pytest.importorskip("torch")
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    done = run_warm_ranks(ranks, program, "out", folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    run = steplens.open(tmp_path / "out")
    assert run.rank_clocks().select("offset_ns", "error_ns").max().row(0) == (0, 1_000)
    parts = clock_bounds(message_sides(run.traces))
    assert parts.height == 120 * ranks
    begin, end = parts["arrival_ns"].min(), parts["leave_ns"].max()
    parts = parts.with_columns(pl.col("arrival_ns", "leave_ns") - begin + BASE_NS)
    inside = total = 0
    for seed in range(20):
        numbers = np.random.default_rng(seed)
        set_rank = int(numbers.integers(1, ranks))
        truth = Truth.drawn(ranks, numbers, end - begin, are_set=(set_rank,) if seed % 2 else ())  # type: ignore[operator]
        moved = truth.moved(parts)
        found = find_clocks(moved)
        placed = beyond_the_bar(found, moved, truth)
        inside += placed.filter(pl.col("off_ns") <= pl.col("error_ns")).height
        total += moved.height
        assert received_before_sent(found, moved) == 0
    assert inside >= 0.95 * total
