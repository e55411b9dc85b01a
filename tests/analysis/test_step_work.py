"""What a step works on longest: medians over the chosen steps, of ranks their mean, and what counts as work."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import polars as pl
import pytest

from steplens.advice.facts import Facts
from steplens.advice.rules.host import device_waits_for_host
from steplens.advice.rules.next_steps import next_host_bound
from steplens.advice.words import Words
from steplens.analysis.device.idle import HOST_CAUSES, LAUNCH, idle_causes, idle_of_step
from steplens.analysis.device.idle_places import idle_places, late_gaps, launch_gaps
from steplens.analysis.device.step_work import step_work
from steplens.analysis.steps.summary import summarize_steps
from steplens.run import Run, Source
from steplens.trace.schema import SCOPE_USER
from steplens.trace.trace import Trace

from .test_verdict import GEMM, REDUCE, cpu, gpu


def work(*traces: Trace) -> list[tuple[str, str, float, float, float]]:
    columns = ("name", "kind", "step_ns", "calls", "ratio")
    return list(step_work(traces).select(columns).iter_rows())


def test_kernels_and_collectives_of_a_step(tmp_path: Path) -> None:
    trace = gpu(tmp_path, [(GEMM, 100, 3000), (GEMM, 3200, 1000), (REDUCE, 2100, 6000)])
    assert work(trace) == [
        ("allreduce", "communication", 6e6, 1.0, pytest.approx(0.6)),
        ("aten::mm", "launched", 4e6, 2.0, pytest.approx(0.4)),
    ]
    assert step_work([trace])["steps"].unique().to_list() == [6]


def test_ranks_that_do_different_work_count_each(tmp_path: Path) -> None:
    """A stage of a pipeline has its own kernels: a median over all steps of all ranks would be 0 for each of them."""
    first, second = gpu(tmp_path, [(GEMM, 100, 4000)], rank=0), gpu(tmp_path, [(REDUCE, 100, 2000)], rank=1)
    assert work(first, second) == [
        ("aten::mm", "launched", 2e6, 0.5, pytest.approx(2 / 3)),
        ("allreduce", "communication", 1e6, 0.5, pytest.approx(1 / 3)),
    ]
    # no step calls half an operator
    assert step_work([first, second]).select("name", "calls_least", "calls_most").rows() == [
        ("aten::mm", 0, 1),
        ("allreduce", 0, 1),
    ]
    twice = cpu(tmp_path, [("aten::mm", 1000, 3000), ("aten::mm", 5000, 1000)])
    once = cpu(tmp_path, [("aten::mm", 1000, 3000)])
    assert step_work([once, twice]).select("calls", "calls_least", "calls_most").rows() == [(1.5, 1, 2)]


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        pytest.param({"op": pl.lit(None, pl.Int32)}, GEMM, id="of no operator"),
        pytest.param({"correlation": pl.lit(7, pl.Int64)}, GEMM, id="all of one launch, as those of a graph are"),
        pytest.param({"op": pl.when(pl.int_range(pl.len()) > 0).then("op")}, "aten::mm", id="all but one of six"),
    ],
)
def test_kernels_whose_operator_is_not_known(tmp_path: Path, changed: dict[str, pl.Expr], name: str) -> None:
    trace = gpu(tmp_path, [(GEMM, 100, 3000)], steps=12)
    tables = {table: trace.required(table).collect() for table in trace}
    other = Trace(trace.source, tables | {"kernels": tables["kernels"].with_columns(**changed)})
    assert work(other)[0][0] == name


def test_user_annotations_are_no_operators(tmp_path: Path) -> None:
    trace = cpu(tmp_path, [("aten::mm", 1000, 3000), ("aten::relu", 5000, 1000), ("## mine ##", 500, 8000)])
    assert work(trace) == [
        ("aten::mm", "operator", 3e6, 1.0, pytest.approx(0.75)),
        ("aten::relu", "operator", 1e6, 1.0, pytest.approx(0.25)),
    ]


def test_without_steps_it_is_a_sum(tmp_path: Path) -> None:
    trace = cpu(tmp_path, [("aten::mm", 1000, 3000)], steps=1)
    alone = Trace(trace.source, {name: trace.required(name).collect() for name in trace if name != "steps"})
    whole = step_work([alone])
    assert (whole["step_ns"].to_list(), whole["steps"].to_list()) == ([3e6], [0])
    assert step_work([]).is_empty()


def test_idle_time_of_a_step_adds_up(tmp_path: Path) -> None:
    trace = gpu(tmp_path, [(GEMM, 100, 3000), (GEMM, 6000, 1000)])
    idle_ns = summarize_steps([trace]).device["idle_ns"]
    causes = idle_of_step([trace], idle_ns)
    assert sum(causes.values()) == pytest.approx(idle_ns) and idle_ns > 0
    assert set(causes) == set(idle_causes(trace)["cause"])
    assert idle_of_step([], 1.0) == {}


def test_before_which_task_the_device_idles(tmp_path: Path) -> None:
    # every task is launched 10 us before it starts
    trace = gpu(tmp_path, [(GEMM, 100, 3000), (REDUCE, 6000, 1000), (GEMM, 6500, 2500), (GEMM, 9110, 90)])
    gaps = late_gaps([trace])
    idle_ns = summarize_steps([trace]).device["idle_ns"]
    places = idle_places([trace], gaps, idle_ns)
    in_step = gaps.filter("is_inside")
    assert set(in_step.select("before", "after", "idle_ns").rows()) == {(GEMM, REDUCE, 2_890_000), (GEMM, GEMM, 100_000)}, (
        "what begins while another task runs waits for nothing"
    )
    pairs = list(places.select("before", "after", "count").iter_rows())
    assert pairs == [(GEMM, REDUCE, 1.0), (None, None, pytest.approx(5 / 6)), (GEMM, GEMM, 1.0)]
    late_ns = sum(ns for cause, ns in idle_of_step([trace], idle_ns).items() if cause in HOST_CAUSES and cause != LAUNCH)
    assert places["idle_ns"].sum() == pytest.approx(late_ns)
    launches = launch_gaps([trace], gaps)
    assert launches is not None and (launches.launches, launches.quick_ns) == (2, 100_000)
    assert (launches.beyond_quick_ns(2_990_000), launches.least_ns) == (2_790_000, 2_990_000), "all steps are alike"
    assert launch_gaps([trace], gaps.clear()) is None


def test_the_host_that_holds_up_is_placed_between_operators(tmp_path: Path) -> None:
    trace = gpu(tmp_path, [(GEMM, 100, 1000), (REDUCE, 6000, 1000), (GEMM, 7200, 800)])
    run = Run(tmp_path, [(Source(tmp_path), trace)], [])
    assert next_host_bound.judge_run is not None
    (finding,) = next_host_bound.judge_run(run, [Facts(trace)])
    held, idle, between, launched, *_ = finding.evidence
    assert held.value == pytest.approx(idle.value + between.value + launched.value), "the lines add up"
    assert (idle.places_count, idle.other_places) == ((1.0, 1.0), 0)
    assert sum(idle.places_ns) == pytest.approx(idle.value)
    assert finding.saving is not None and finding.saving.likely_ns == pytest.approx(idle.value - 2 * 190_000)
    # the rule about accelerators says the same of what the host was not seen to do
    tables = {name: trace.required(name).collect() for name in trace}
    without_calls = Trace(trace.source, {**tables, "ops": tables["ops"].filter(pl.col("scope") == SCOPE_USER)})
    (late,) = device_waits_for_host.judge(Facts(without_calls))
    lengths = {item.what: item.value for item in late.evidence}
    assert lengths["idle_in_step"] + lengths["idle_between_steps"] == pytest.approx(lengths["idle_not_recorded"])


@pytest.mark.parametrize("framework", ["PyTorch", "MindSpore", ""])
def test_the_remedy_is_about_the_gap_that_the_title_names(tmp_path: Path, framework: str) -> None:
    trace = gpu(tmp_path, [(GEMM, 100, 1000), (REDUCE, 6000, 1000), (GEMM, 7200, 800)])
    assert next_host_bound.judge_run is not None
    (finding,) = next_host_bound.judge_run(Run(tmp_path, [(Source(tmp_path), trace)], []), [Facts(trace)])
    finding = dataclasses.replace(finding, framework=framework)
    for language, begin in (("en", "Begin with what runs between "), ("zh", "先处理 ")):
        text = Words(language).of(finding)
        for part in (text.title, text.remedy, text.likely):
            assert finding.values["before"] in part and finding.values["after"] in part
        assert text.remedy.startswith(begin)
        tool = {"PyTorch": "torch.compile", "MindSpore": "mindspore.jit"}.get(framework)
        assert tool is None or tool in text.remedy
    # what goes is of this gap, in every step as long
    assert finding.saving is not None and finding.saving.low_ns == pytest.approx(finding.saving.likely_ns)


def test_gaps_that_are_all_alike_have_no_place_in_the_title(tmp_path: Path) -> None:
    trace = gpu(tmp_path, [(GEMM if number % 2 else REDUCE, 100 + 1000 * number, 500) for number in range(10)])
    assert next_host_bound.judge_run is not None
    (finding,) = next_host_bound.judge_run(Run(tmp_path, [(Source(tmp_path), trace)], []), [Facts(trace)])
    text = Words("en").of(finding)
    assert text.title == "The host holds the step up in many gaps between operators (9 in a step)"
    assert text.remedy.startswith("Launch less often first") and "the 9 gaps between operators" in text.likely


def test_the_pages_say_between_which_operators(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    from steplens.server.advice import finding_shown

    trace = gpu(tmp_path, [(GEMM, 100, 1000), (REDUCE, 6000, 1000), (GEMM, 7200, 800)])
    assert next_host_bound.judge_run is not None
    (finding,) = next_host_bound.judge_run(Run(tmp_path, [(Source(tmp_path), trace)], []), [Facts(trace)])
    shown = finding_shown(finding, {0: trace}, [0])
    (longest, _) = shown.evidence[1].events
    assert (longest.trace, longest.end_ns - longest.start_ns) == (0, 4_890_000)
    assert (
        shown.texts["en"].title
        == f"The host holds the step up, longest between {finding.values['before']} and {finding.values['after']}"
    )


def test_what_every_step_idles_is_the_least(tmp_path: Path) -> None:
    trace = gpu(tmp_path, [(GEMM, 100, 3000), (REDUCE, 6000, 1000), (GEMM, 6500, 2500), (GEMM, 9110, 90)])
    gaps = late_gaps([trace])
    longer = pl.when(pl.col("is_inside") & (pl.col("step") == 3)).then(5e6).otherwise(pl.col("idle_ns"))
    shorter = pl.when(pl.col("is_inside") & (pl.col("step") == 2)).then(1e5).otherwise(longer)
    launches = launch_gaps([trace], gaps.with_columns(idle_ns=shorter.cast(pl.Int64)))
    assert launches is not None
    assert launches.least_ns == 200_000 and launches.beyond_quick_ns(100.0) == 0
