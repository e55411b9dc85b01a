"""Clocks of ranks against programs whose clocks are known: simulated jobs, and real gloo jobs whose times are moved."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

import steplens
from steplens.analysis.cluster.clocks import bounds
from steplens.analysis.cluster.clocks.bounds import MESSAGES
from steplens.analysis.cluster.clocks.clock import Clocks, find_clocks
from steplens.analysis.cluster.clocks.differences import differing_clocks
from steplens.analysis.cluster.clocks.job_clocks import find_clock_trouble, rank_clocks
from steplens.analysis.cluster.clocks.messages import clock_bounds, message_sides
from steplens.analysis.cluster.clocks.pair_errors import PairErrors
from steplens.analysis.cluster.clocks.solution import PIECES
from steplens.trace import health
from steplens.trace.trace import Trace

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


# in 6, 10 and 54 clocks drift apart by tens of nanoseconds while a message is on its way
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 6, 10, 54])
def test_very_many_messages_are_looked_at_in_portions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of groups beside a row of groups across them, as of tensor and data parallel ranks."""
    numbers = np.random.default_rng(seed)
    groups = [[*range(start, start + 4)] for start in range(0, 16, 4)] + [[*range(start, 16, 4)] for start in range(4)]
    truth = Truth.drawn(16, numbers, 10 * S, are_set=(5,) if seed % 2 else ())
    parts = truth.moved(simulated(groups, 120, numbers))
    at_once = find_clocks(parts)
    assert received_before_sent(at_once, parts) == 0
    monkeypatch.setattr(bounds, "_SIDES", 500)
    found = find_clocks(parts)
    placed = beyond_the_bar(found, parts, truth)
    assert placed.height > 0.97 * parts.height and (placed["off_ns"] <= placed["error_ns"]).mean() >= 0.95
    assert received_before_sent(found, parts) == 0
    assert found.pieces["messages"].to_list() == at_once.pieces["messages"].to_list()
    ratio = found.pieces["error_ns"].median() / at_once.pieces["error_ns"].median()  # type: ignore[operator]
    assert ratio == pytest.approx(1, abs=0.2)


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


def traces_of(parts: pl.DataFrame, hosts: dict[int, str] | None = None, *, with_steps: bool = True) -> list[Trace]:
    """Traces with these messages as their collectives, each in a step of its own."""
    ranks = parts["rank"].unique().sort().to_list()
    sizes = dict(parts.group_by("group").agg(pl.col("rank").n_unique()).iter_rows())
    rows: dict[int, list[dict[str, object]]] = {rank: [] for rank in ranks}
    for row in parts.iter_rows(named=True):
        rows[row["rank"]].append(
            {"name": "all", "operation": "allreduce", "kind": "collective", "group": row["group"],
             "step": row["message"] if with_steps else None,
             "start_ns": row["arrival_ns"], "end_ns": row["leave_ns"], "ranks": sizes[row["group"]]}
        )  # fmt: skip
    host = hosts or {}
    return [
        build(meta={"rank": rank, "world_size": len(ranks), "host_name": host.get(rank, "")}, communication=rows[rank])
        for rank in ranks
    ]


def test_ranks_without_steps_are_compared_by_all_that_they_exchanged() -> None:
    numbers = np.random.default_rng(8)
    parts = simulated([[0, 1, 2, 3]], 60, numbers)
    truth = Truth.drawn(4, numbers, 10 * S)
    traces = traces_of(truth.moved(parts), with_steps=False)
    sides = message_sides(traces)
    assert sides.height == parts.height and sides["step"].null_count() == sides.height
    found = rank_clocks(traces)
    assert found["rank"].to_list() == [0, 1, 2, 3]
    for row in found.iter_rows(named=True):
        # what has to be added at the first message of the rank
        since = row["first_message_ns"] - truth.offset_ns[row["rank"]] - BASE_NS
        true = sum(sign * (truth.offset_ns[rank] + truth.drift[rank] * since) for rank, sign in ((0, 1), (row["rank"], -1)))
        assert abs(row["offset_ns"] - true) <= row["error_ns"] + 1_000 and row["error_ns"] < MS
    assert {one.check for one in find_clock_trouble(traces)} == {"rank_clock_offset"}


@pytest.mark.parametrize("later", [1, 2])
def test_ranks_without_steps_that_began_at_different_messages_are_not_compared(later: int) -> None:
    """Equally many messages, but the first of rank 1 is the second or third of rank 0."""
    parts = simulated([[0, 1]], 60, np.random.default_rng(9))
    of_first = (pl.col("rank") == 0) & (pl.col("message") < 60 - later)
    traces = traces_of(parts.filter(of_first | ((pl.col("rank") == 1) & (pl.col("message") >= later))), with_steps=False)
    assert message_sides(traces).is_empty() and rank_clocks(traces).is_empty()


def test_messages_outside_the_steps_of_a_rank_are_left_out() -> None:
    parts = simulated([[0, 1]], 30, np.random.default_rng(9))
    with_steps, without = traces_of(parts), traces_of(parts, with_steps=False)
    assert message_sides([with_steps[0], without[1]]).is_empty()


@pytest.mark.parametrize("by_ns", [-1.5 * S, 0.4 * S])
def test_a_clock_that_was_set_is_found_and_said(by_ns: float) -> None:
    truth = Truth(np.zeros(4), np.zeros(4), np.array([np.inf, np.inf, 5.0 * S, np.inf]), np.array([0, 0, by_ns, 0]))
    parts = truth.moved(simulated([[0, 1, 2, 3]], 200, np.random.default_rng(3)))
    found = find_clocks(parts)
    before, after = found.pieces.filter(rank=2).rows(named=True)
    assert before["offset_ns"] - after["offset_ns"] == pytest.approx(by_ns, abs=2 * MS)
    traces = traces_of(parts)
    (trouble,) = find_clock_trouble(traces)
    direction = "forward" if by_ns > 0 else "back"
    assert trouble.check == "rank_clock_set" and f"the clock of rank 2 was set {direction} by" in trouble.message
    assert rank_clocks(traces)["rank"].to_list() == [0, 1, 2, 2, 3]


def test_ends_that_contradict_messages_move_no_clock() -> None:
    """Rank 1 is told of most ends late. Where it was told at once, messages leave little, and the bar is half of that."""
    parts = simulated([[0, 1]], 120, np.random.default_rng(10)).sort("message", "rank")
    is_late = (pl.col("rank") == 1) & (pl.col("message") % 8 > 0)
    parts = parts.with_columns(leave_ns=pl.col("leave_ns") + pl.when(is_late).then(2 * MS).otherwise(0))
    truth = Truth(np.array([0, 3.0 * S]), np.zeros(2), np.full(2, np.inf), np.zeros(2))
    (piece,) = find_clocks(truth.moved(parts)).pieces.filter(rank=1).rows(named=True)
    assert abs(piece["offset_ns"] + 3 * S) <= piece["error_ns"] < 250_000


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


def test_the_ranks_of_a_host_whose_clock_differs_are_one_finding() -> None:
    """Both hosts' clocks are told with sign and bar; the one that drifts with where it begins and ends."""
    hosts = {rank: f"node{rank // 4}" for rank in range(12)}
    of_host = np.repeat([0, 30 * MS, -2 * S], 4).astype(np.float64)
    truth = Truth(of_host, np.repeat([0, 0, 2e-4], 4), np.full(12, np.inf), np.zeros(12))
    traces = traces_of(truth.moved(simulated([[*range(12)]], 100, np.random.default_rng(1))), hosts)
    offset, drifting = find_clock_trouble(traces)
    assert [(one.check, one.severity, one.count) for one in (offset, drifting)] == [("rank_clock_offset", health.INFO, 4)] * 2
    assert offset.message.startswith("the clock of host node1 (ranks 4-7) is 30 ms ahead of that of rank 0, within ")
    assert offset.message.endswith("what compares times of ranks is corrected for it")
    assert drifting.message.startswith("the clock of host node2 (ranks 8-11) is at first 2 s behind and, drifting by ")
    assert "in the end 2 s behind that of rank 0, within " in drifting.message
    (ppm,) = re.findall("drifting by ([0-9.]+) ppm", drifting.message)
    assert float(ppm) == pytest.approx(200, rel=0.05)


def test_ranks_of_unknown_hosts_whose_clocks_were_moved_alike_are_one_finding() -> None:
    truth = Truth(np.repeat([0, 30 * MS], 4).astype(np.float64), np.zeros(8), np.full(8, np.inf), np.zeros(8))
    (found,) = find_clock_trouble(traces_of(truth.moved(simulated([[*range(8)]], 100, np.random.default_rng(1)))))
    assert found.message.startswith("the clock of each of ranks 4-7 is 30 ms ahead of that of rank 0, within ")


def test_many_clocks_that_differ_are_one_line() -> None:
    truth = Truth(np.arange(40) * 20.0 * MS, np.zeros(40), np.full(40, np.inf), np.zeros(40))
    (found,) = find_clock_trouble(traces_of(truth.moved(simulated([[*range(40)]], 30, np.random.default_rng(1)))))
    assert (found.check, found.count) == ("rank_clock_offset", 39)
    assert "that of rank 39 by 780 ms, within " in found.message


def test_a_bar_that_leaves_waits_of_a_step_open_is_a_warning() -> None:
    """Of steps of 40 ms a bar of 30 ms leaves everything open."""
    pieces = pl.DataFrame(
        [(0, 0, 0, 0, S, 0, 0.0, 0, 9), (1, 0, 0, 0, S, -90 * MS, 0.0, 30 * MS, 9), (2, 0, 0, 0, S, -90 * MS, 0.0, None, 9)],
        schema=PIECES, orient="row",
    )  # fmt: skip
    wide, open_ended = differing_clocks(pieces, {}, 40.0 * MS)
    assert (wide.severity, open_ended.severity) == (health.WARNING, health.WARNING)
    assert "within no less than 30 ms" in wide.message and "shorter waits are not told apart" in wide.message
    assert open_ended.message.startswith(
        "the clock of rank 2 is about 90 ms ahead of that of rank 0, and messages bound it on one side"
    )
    (exact,) = differing_clocks(pieces.filter(pl.col("rank") < 2), {}, 1.0 * S)
    assert exact.severity == health.INFO


def test_clocks_that_differ_by_less_than_their_bar_are_not_said_to_differ() -> None:
    rows = [(0, 0, 0, 0, S, 0, 0.0, 0, 9), (1, 0, 0, 0, S, -3 * MS, 0.0, 4 * MS, 9), (2, 0, 0, 0, S, 900_000, 0.0, 1_000, 9)]
    assert list(differing_clocks(pl.DataFrame(rows, schema=PIECES, orient="row"), {}, None)) == []


def test_an_offset_that_some_messages_agree_on_is_told_where_others_contradict_it() -> None:
    """Rank 1 lost some of its messages behind the middle: what follows is paired with others than its own, and nothing is
    corrected."""
    parts = simulated([[0, 1]], 90, np.random.default_rng(4))
    late = pl.col("leave_ns") + 5 * MS, pl.col("arrival_ns") + 5 * MS
    one = parts.filter(pl.col("rank") == 1, (pl.col("message") < 50) | (pl.col("message") % 3 != 0)).with_columns(*late)
    one = one.with_columns(message=pl.int_range(pl.len(), dtype=pl.Int64))
    traces = traces_of(pl.concat([parts.filter(pl.col("rank") == 0, pl.col("message") < one.height), one]))
    assert rank_clocks(traces).is_empty()
    contradictory, agreed = find_clock_trouble(traces)
    assert (contradictory.check, contradictory.severity) == ("contradictory_messages", health.WARNING)
    assert (agreed.check, agreed.severity) == ("rank_clock_offset", health.WARNING)
    assert "collectives tell, which end 5.0" in agreed.message and "ms later on rank 1 than on rank 0" in agreed.message


PROGRAM = """
import os, random, sys, torch, torch.distributed as dist, steplens

dist.init_process_group("gloo")
torch.set_num_threads(1)
rank = dist.get_rank()
numbers = random.Random(rank)
model = torch.nn.Linear(64, 64)
with steplens.profile(
    schedule=steplens.schedule(wait=0, warmup=2, active=30, repeat=1),
    record_shapes=True,
    on_trace_ready=steplens.tensorboard_trace_handler(sys.argv[1], analyse_flag=False),
) as prof:
    for _ in range(33):
        for _ in range(4):
            for _ in range(numbers.randrange(3)):
                model(torch.randn(64, 64)).sum().backward()
            dist.all_reduce(torch.ones(16))
        for other in (rank ^ 1, (rank + 1 if rank % 2 else rank - 1) % dist.get_world_size()):
            for passing in (dist.send, dist.recv) if rank < other else (dist.recv, dist.send):
                passing(torch.ones(1), other)
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
    between_two = pl.col("group").str.contains("send/receive")
    assert parts.filter(~between_two).height == 120 * ranks and parts.filter(between_two).height == 30 * 4 * ranks
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


def test_the_error_of_a_pair_is_that_of_its_worst_pieces_either_way_round() -> None:
    errors = PairErrors.of_pieces(np.array([3, 0, 1, 0]), np.array([1, 9_999, 3, 1]), np.array([5.0, 7.0, 6.0, 2.0]))
    assert [errors.find_error(*pair) for pair in ((1, 3), (3, 1), (9_999, 0), (0, 1), (0, 3))] == [6.0, 6.0, 7.0, 2.0, None]
    assert PairErrors().find_error(0, 1) is None
