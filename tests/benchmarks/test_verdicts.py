"""What of a generated job is slow is named, and nothing is where nothing is; see ``benchmarks.jobs.verdicts``."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from benchmarks.jobs.faults import parse_faults
from benchmarks.jobs.job import write_job
from benchmarks.jobs.layout import Layout
from benchmarks.jobs.program import Model
from benchmarks.jobs.truth import MESSAGES, RECORD, STEPS
from benchmarks.jobs.verdicts import expected_name, judge

import steplens
from steplens.advice.advice import advise
from steplens.advice.finding import LOW, Finding
from steplens.advice.texts import CATALOGUES
from steplens.analysis.cluster.clocks.job_clocks import host_of
from steplens.analysis.cluster.stragglers.exposed_waits import exposed_waits
from steplens.analysis.cluster.stragglers.message_times import message_times
from steplens.analysis.verdict_words import ENGLISH, PIPELINE, RANK, SLOW_HOST, SLOW_LINK, SLOW_STAGE
from steplens.run import Run

#: two stages, each on two hosts
LAYOUT = Layout(data=4, pipeline=2, tensor=1, ranks_per_host=2)
MODEL = Model(layers=1, operators_per_layer=6, batches=3)


def write(folder: Path, *faults: str, layout: Layout = LAYOUT) -> Path:
    """A job whose clocks differ, too."""
    found = parse_faults([*faults, "clock_offset:host=1,seconds=0.3"], layout, 3, 1)
    write_job(folder, layout, MODEL, found, seed=4, steps=3)
    return folder


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("sound"))


@pytest.mark.parametrize(
    ("fault", "name", "kind", "says"),
    [
        ("slow_rank:rank=6", "rank 6", RANK, {"rank": 6}),
        ("slow_host:host=3,factor=1.4", "host 3", SLOW_HOST, {"slow_host": "node0003"}),
        ("imbalanced_stage:stage=0", "stage 1", SLOW_STAGE, {"slow_stage": 1}),
        ("slow_link:a=2,b=6", "link 2-6", SLOW_LINK, {"link": ("2", "6"), "is_link_of_ranks": True}),
        ("slow_link:host=0", "link of host 0", SLOW_LINK, {"link": ("node0000",), "is_link_of_ranks": False}),
    ],
)
def test_what_is_slow_is_named(tmp_path: Path, fault: str, name: str, kind: str, says: dict[str, object]) -> None:
    folder = write(tmp_path, fault)
    judged = judge(folder, LAYOUT)
    assert (judged["expected"], judged["named"], judged["false"]) == (name, name, "")
    found = steplens.open(folder).verdict()
    assert found.kind == kind
    assert {key: getattr(found, key) for key in says} == says
    if kind == RANK:
        # all of its operators are slower, and none of them is the reason
        (late,) = _findings(steplens.open(folder), "slow_rank")
        assert (late.values["case"], late.values["call"]) == ("late_computing", "")
    for words in (ENGLISH, CATALOGUES["zh"].verdict):
        assert "{" not in found.sentence(words)


def test_the_bubble_has_the_collectives_of_its_stages_and_the_transfers_between_them(tmp_path: Path) -> None:
    """Micro-batches of tensor parallelism move data on their way: stages wait for that, too, and for nothing beyond it."""
    layout = Layout(data=2, pipeline=4, tensor=2, ranks_per_host=4)
    found = parse_faults(["clock_offset:host=1,seconds=0.3"], layout, 3, 1)
    write_job(tmp_path, layout, Model(layers=1), found, seed=1, steps=3)
    verdict = steplens.open(tmp_path).verdict()
    assert verdict.kind == PIPELINE
    assert verdict.sentence(ENGLISH).startswith("Pipeline bubble: ")
    judged = judge(tmp_path, layout)
    assert (judged["named"], judged["false"]) == ("nothing", "")
    assert "stage_waits" not in {finding.rule for finding in advise(steplens.open(tmp_path)).findings}
    waits = exposed_waits(steplens.open(tmp_path).traces)
    # gradients are no part of it: they are summed once, after all micro-batches
    assert (waits["micro_batch_moving_ns"] > 0).all()
    assert (waits["micro_batch_moving_ns"] < 0.9 * waits["collective_moving_ns"]).all()


def test_a_sound_pipeline_has_a_bubble_and_nothing_slow(sound: Path) -> None:
    assert expected_name(sound) == ""
    judged = judge(sound, LAYOUT)
    assert (judged["named"], judged["right"]) == ("nothing", True)
    run = steplens.open(sound)
    (bubble,) = [finding for finding in advise(run).findings if finding.rule == "pipeline_bubble"]
    assert (bubble.level, bubble.saving) == (LOW, None)
    # two stages, three micro-batches: a quarter; six: a seventh
    assert {name: bubble.values[name] for name in ("formula", "then", "stages", "batches", "more")} == {
        "formula": "25", "then": "14", "stages": 2, "batches": 3, "more": 6,
    }  # fmt: skip


def test_waiting_and_moving_of_all_messages_are_those_of_the_truth(sound: Path) -> None:
    """Sends and receives as well as collectives, although the clock of a host is off by 300 ms."""
    run = steplens.open(sound)
    found = message_times(run.traces)
    true = pl.read_parquet(sound / MESSAGES)
    assert found.height == true.height
    key = ["step", "rank"]
    operation = pl.when(pl.col("kind") == "collective").then("operation").otherwise(pl.col("kind").replace("receive", "recv"))
    found = found.with_columns(operation=operation).sort(*key, "operation", "own_start_ns")
    true = true.sort(*key, "operation", "arrival_ns")
    true = true.select("operation", "wait_ns", "transfer_ns").rename(lambda name: f"{name}_true")
    both = pl.concat([found, true], how="horizontal")
    assert both["operation"].to_list() == both["operation_true"].to_list()
    # as far as the messages leave open how the clocks lie
    apart = (pl.col("wait_ns") - pl.col("wait_ns_true")).abs()
    assert both.filter(apart > pl.col("error_ns") + 2_000).is_empty()
    assert both["wait_ns_true"].max() > 1_000_000
    assert both.filter(apart <= 50_000).height > 0.9 * both.height


def test_exposed_communication_is_moving_and_waiting(sound: Path) -> None:
    rows = exposed_waits(steplens.open(sound).traces)
    assert rows.height == 24
    parts = rows.select(pl.sum_horizontal("moving_ns", "waiting_ns", "unknown_ns")).to_series()
    assert parts.to_list() == rows["exposed_ns"].to_list()
    assert rows["unknown_ns"].sum() == 0
    steps = pl.read_parquet(sound / STEPS)
    messages = pl.read_parquet(sound / MESSAGES)
    # what is exposed waits no longer than all messages do
    assert rows["waiting_ns"].sum() < messages["wait_ns"].sum()
    assert 0.1 < rows["waiting_ns"].sum() / steps["duration_ns"].sum() < 0.5


def test_hosts_are_those_of_file_names(sound: Path) -> None:
    run = steplens.open(sound)
    assert [host_of(trace) for trace in run.traces] == [f"node{rank // 2:04}" for rank in range(8)]


def test_a_stage_on_a_host_of_its_own_may_be_a_slow_host(tmp_path: Path) -> None:
    layout = Layout(data=2, pipeline=2, tensor=1, ranks_per_host=2)
    run = steplens.open(write(tmp_path, "slow_host:host=1,factor=1.5", layout=layout))
    (finding,) = _findings(run, "slow_stage")
    assert (finding.values["stage"], finding.values["host"], finding.values["case"]) == (2, "node0001", "one_host")
    assert not _findings(run, "slow_host")
    assert json.loads((tmp_path / RECORD).read_text())["faults"][0]["kind"] == "slow_host"


def test_a_deep_pipeline_is_bound_by_its_bubble(tmp_path: Path) -> None:
    folder = write(tmp_path, layout=Layout(data=1, pipeline=4, tensor=1, ranks_per_host=2))
    found = steplens.open(folder).verdict()
    assert (found.kind, found.stages, found.batches) == (PIPELINE, 4, 3)
    # 3 of 6 turns, of what is neither moved nor spent by the optimizer
    assert 0.3 < found.implied < 0.5 and abs(found.share - found.implied) < 0.1
    assert found.sentence().startswith("Pipeline bubble: ")


def _findings(run: Run, rule: str) -> list[Finding]:
    return [finding for finding in advise(run).findings if finding.rule == rule]
