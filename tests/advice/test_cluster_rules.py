"""The rules that compare ranks on hand-built jobs: what is said, what it costs, and silence just below every threshold."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.advice import Finding, advise
from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Saving
from steplens.advice.judging.pricing import Prices
from steplens.advice.rule import Rule
from steplens.advice.rules.cluster import largest_difference, slow_card, slow_interval, slow_link, slow_rank
from steplens.advice.rules.collectives import long_collectives
from steplens.advice.rules.loaders import loader_too_slow, loader_without_workers
from steplens.advice.rules.parallelism import (
    data_parallel_communication,
    model_parallel_communication,
    stage_balance,
    stage_collectives,
    stage_waits,
    unknown_parallel_communication,
)
from steplens.advice.texts import CATALOGUES, TEXTS
from steplens.advice.words import Words
from steplens.analysis.cluster.arrivals import SlowRank
from steplens.run import Run, Source
from steplens.timeline.event_names import has_event
from steplens.trace.building.build import conform_to_schema
from steplens.trace.health import STEP_DEVICE_TIMES, WARNING, HealthFinding, frame_of
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Trace

from ..shared_data import shared
from ..writers.builder import BASE_NS, MAIN, PID, build
from .test_minddata_rules import RULES as OF_PIPELINES

WORDS = Words("en")
MS = 1_000_000
STEPS = range(1, 5)
STEP_MS = 10
RULES = (
    slow_interval, slow_card, slow_link, data_parallel_communication, model_parallel_communication,
    unknown_parallel_communication, stage_waits, stage_collectives, stage_balance, long_collectives,
)  # fmt: skip

#: a collective of which its operation is not known
UNNAMED = "all"

#: begin and end in ms from the start of every step, and what it is
Span = tuple[float, float, str]


def rank_trace(rank: int, size: int, *spans: Span, core: str = "AI_CORE", shift_ms: float = 0, **meta: Any) -> Trace:
    """Four steps of 10 ms of one rank, each with these spans: "compute", or a kind of communication."""
    steps, kernels, communication = [], [], []
    for step in STEPS:
        base = BASE_NS + step * STEP_MS * MS
        steps.append({"id": step, "start_ns": base, "end_ns": base + STEP_MS * MS, "pid": PID, "tid": MAIN})
        for begin, end, what in spans:
            late = shift_ms if what != "compute" else 0
            times = {"start_ns": base + round((begin + late) * MS), "end_ns": base + round(end * MS), "step": step}
            if what == "compute":
                kernels.append({"name": "MatMul", "type": "MatMul", "kind": "compute", "core": core, "device": 0, "stream": 1,
                                **times})  # fmt: skip
            else:
                kind = "collective" if what.startswith("all") else what
                operation = None if what == UNNAMED else what
                named = {"name": what, "operation": operation, "kind": kind, "group": "world"}
                communication.append({**named, "bytes": 1 << 20, **times})
    meta = {"rank": rank, "world_size": size, "host_name": "one", **meta}
    return build(meta=meta, steps=steps, kernels=kernels, communication=communication)


def with_points(trace: Trace, interval_ms: float) -> Trace:
    rows = [
        {"step": step, "start_ns": (start := BASE_NS + step * STEP_MS * MS), "forward_ns": start + round(interval_ms * MS),
         "backward_ns": start + 9 * MS, "end_ns": start + STEP_MS * MS}
        for step in STEPS
    ]  # fmt: skip
    tables = {name: trace.table(name) for name in trace}
    points = pl.DataFrame(rows, schema=SCHEMA["step_points"])
    return Trace(trace.source, {**{name: frame for name, frame in tables.items() if frame is not None}, "step_points": points})


def with_work(trace: Trace, flops: float, rate: float) -> Trace:
    """With the summary of the device's counters: 10**6 operations of a step, 10**9 per second."""
    record = json.dumps({"FLOPs": str(flops), "FLOPS": str(rate), "FLOPS_Utilization": "50"})
    kept = pl.DataFrame({"table": ["flops_summary"], "row": [0], "record": [record]}, schema=SCHEMA["source_tables"])
    tables = {name: frame for name in trace if (frame := trace.table(name)) is not None}
    return Trace(trace.source, {**tables, "source_tables": kept})


def run_of(traces: Sequence[Trace]) -> Run:
    return Run(Path("run"), [(Source(Path("run") / f"rank{number}"), trace) for number, trace in enumerate(traces)], [])


def found(rule: Any, traces: Sequence[Trace]) -> list[Finding]:
    facts = [Facts(trace) for trace in traces]
    return list(rule.judge_run(run_of(traces), facts)) if rule.applies(facts) else []


def only(rule: Any, traces: Sequence[Trace]) -> Finding:
    (finding,) = found(rule, traces)
    assert finding.rule == rule.name
    return finding


def figures(finding: Finding) -> dict[str, float]:
    return {item.what: item.value for item in finding.evidence}


def saving(finding: Finding) -> tuple[float, float, float]:
    assert finding.saving is not None
    return finding.saving.low_ns, finding.saving.likely_ns, finding.saving.high_ns


def job(*spans: Span, ranks: int = 2, **more: Any) -> list[Trace]:
    return [rank_trace(rank, ranks, *spans, **more) for rank in range(ranks)]


@pytest.mark.parametrize(
    ("rule", "operation"),
    [
        (data_parallel_communication, "allreduce"),
        (model_parallel_communication, "allgather"),
        (unknown_parallel_communication, UNNAMED),
    ],
)
def test_communication_alone(rule: Any, operation: str) -> None:
    traces = job((0, 6, "compute"), (5, 9, operation))
    finding = only(rule, traces)
    # 3 of 10 ms lie outside computing, and 1 ms may
    assert saving(finding) == pytest.approx((0, 2 * MS, 3 * MS))
    assert (finding.values["percent"], finding.level, finding.step_ns) == ("30.00", "high", STEP_MS * MS)
    assert figures(finding)["moving_share"] == 100
    # there is no more computing than 1 ms to hide it behind
    small = only(rule, job((0, 1, "compute"), (1, 9, operation)))
    assert saving(small) == pytest.approx((0, 1 * MS, 8 * MS))
    # what each rests on
    assert WORDS.of(finding).likely == "if 10 % of a step stay exposed"
    explained = dataclasses.replace(finding, evidence=(Evidence("explained_elsewhere", MS, "ns", places=("slow_rank",)),))
    assert WORDS.of(explained).likely == "if 10 % of a step stay exposed, without what other findings explain"
    assert WORDS.of(small).likely == "if as much runs beside computing as has room there (1 ms a step)"
    # a tenth is not more than a tenth
    assert found(rule, job((0, 6, "compute"), (5, 7, operation))) == []
    # another kind of parallelism has another rule
    kinds = {data_parallel_communication, model_parallel_communication, unknown_parallel_communication}
    assert [found(other, traces) for other in kinds - {rule}] == [[], []]
    # one rank alone
    assert found(rule, job((0, 6, "compute"), (5, 9, operation), ranks=1)) == []


def test_a_collective_without_a_name_leaves_the_others_theirs() -> None:
    """What was launched before the recording has no name; the rest says that gradients are exchanged."""
    traces = job((0, 5, "compute"), (5, 6, UNNAMED), (6, 9, "allreduce"))
    only(data_parallel_communication, traces)
    assert found(unknown_parallel_communication, traces) == []


def test_waiting_for_a_late_rank_is_no_communication() -> None:
    """The early rank waits 3 ms in its collective for the late one; 1 ms of moving is all there is."""
    spans = ((0, 5, "compute"), (5, 9, "allreduce"))
    traces = [rank_trace(0, 2, *spans), rank_trace(1, 2, *spans, shift_ms=3)]
    # 2.5 of 10 ms alone, of which 2 / (2 + 3) moves data: 10 % is left
    assert found(data_parallel_communication, traces) == []
    closer = [rank_trace(0, 2, *spans), rank_trace(1, 2, *spans, shift_ms=1)]
    finding = only(data_parallel_communication, closer)
    assert figures(finding)["moving_share"] == pytest.approx(100 * 6 / 7)
    # the title names the part that moves data, as the threshold does
    assert finding.values["percent"] == f"{figures(finding)['communication_rate'] * 6 / 7:.2f}"


def test_waits_that_the_library_measured() -> None:
    """One rank of two: nothing tells who came late but what the communication library itself says."""
    (trace, _) = job((0, 6, "compute"), (5, 9, "allreduce"))
    times = pl.DataFrame(
        {"name": ["allreduce"] * 4, "kind": "collective", "group": "world", "step": list(STEPS), "transit_ms": 1.0}
    ).with_columns(wait_ms=pl.lit(3.0))
    tables = {name: frame for name in trace if (frame := trace.table(name)) is not None}
    measured = Trace(trace.source, {**tables, "communication_times": conform_to_schema("communication_times", times)})
    # 3 ms alone, of which a quarter moves data: no tenth of the step
    assert found(data_parallel_communication, [measured]) == []
    finding = only(data_parallel_communication, [trace])
    assert [item.places for item in finding.evidence if item.what == "missing_ranks"] == [("rank 1",)]
    # nothing tells at all: half of what both ranks together would be promised
    assert "waiting_unknown" in figures(finding) and "moving_share" not in figures(finding)
    assert saving(finding) == pytest.approx((0, 1 * MS, 3 * MS)) and finding.confidence == 0.3
    assert WORDS.of(finding).likely.endswith(", and half of the rest is moving data, not waiting, as assumed")


def test_what_of_communication_is_waiting_is_said_only_where_it_was_measured() -> None:
    """One rank of two, 3 ms of a step in a collective; that 2 of these are waiting only the library can say."""
    (trace, _) = job((0, 6, "compute"), (6, 9, "allreduce"))
    times = pl.DataFrame(
        {"name": ["allreduce"] * 4, "kind": "collective", "group": "world", "step": list(STEPS), "transit_ms": 1.0}
    ).with_columns(wait_ms=pl.lit(2.0))
    tables = {name: frame for name in trace if (frame := trace.table(name)) is not None}
    measured = Trace(trace.source, {**tables, "communication_times": conform_to_schema("communication_times", times)})
    gains = Finding("python_in_the_loop", 0.7, (), Saving(1 * MS, 2 * MS, 4 * MS), STEP_MS * MS, part="idle_ns")
    for one, what, may_wait_ms in ((trace, "communicates_with_missing_ranks", 3), (measured, "waits_for_missing_ranks", 2)):
        facts = [Facts(one)]
        priced = Prices(run_of([one]), facts).price_on_path(gains, facts[0], None)
        (evidence,) = priced.evidence
        assert (evidence.what, evidence.value, evidence.places) == (what, pytest.approx(may_wait_ms * MS), ("rank 1",))
        assert saving(priced) == (0, 1 * MS, 4 * MS)
    assert "nothing tells how much is waiting" in WORDS.evidence("communicates_with_missing_ranks")


def test_on_a_cpu_communication_has_no_price() -> None:
    """What exchanges gradients there takes processors from what computes, so running them at once saves nothing."""
    finding = only(data_parallel_communication, job((0, 6, "compute"), (5, 9, "allreduce"), core="CPU"))
    assert (finding.saving, finding.level) == (None, "low")


def pipeline(first: Sequence[Span], second: Sequence[Span]) -> list[Trace]:
    """Four ranks in two stages."""
    meta = {"stage_num": 2, "parallel_mode": "pipeline-parallel"}
    return [rank_trace(rank, 4, *(first if rank < 2 else second), **meta) for rank in range(4)]


def test_stages_that_wait() -> None:
    """Stage 1 computes 2 ms and waits 6, stage 2 computes 6 and waits 3: only what stage 2 waits makes a step shorter."""
    traces = pipeline([(0, 2, "compute"), (2, 8, "receive")], [(0, 6, "compute"), (5, 9, "receive")])
    finding = only(stage_waits, traces)
    assert figures(finding)["receive_rate"] == pytest.approx(45)
    assert saving(finding) == pytest.approx((0, 2 * MS, 3 * MS))
    assert [item.places for item in finding.evidence if item.what == "receive_alone"] == [
        ("rank 0",), ("rank 1",), ("rank 2",), ("rank 3",),
    ]  # fmt: skip
    # receives beside another collective cost nothing of their own
    beside = pipeline([(0, 8, "compute"), (8, 9, "receive"), (8, 9, "allreduce")], [(0, 8, "compute"), (8, 9, "receive")])
    assert found(stage_waits, beside) == []


def test_collectives_within_stages() -> None:
    traces = pipeline([(0, 2, "compute"), (2, 8, "allreduce")], [(0, 6, "compute"), (5, 8, "allreduce")])
    waiting, critical = found(stage_collectives, traces)
    assert [figures(one)["collective_rate"] for one in (waiting, critical)] == pytest.approx([60, 20])
    assert (waiting.subject, waiting.saving, figures(waiting)["waits_for_stage"]) == ("stage1", None, 2)
    assert critical.subject == "stage2" and saving(critical) == pytest.approx((0, 1 * MS, 2 * MS))
    few = pipeline([(0, 9, "compute"), (9, 10, "allreduce")], [(0, 9, "compute"), (8, 9, "allreduce")])
    assert found(stage_collectives, few) == []


def test_stages_of_unequal_work() -> None:
    spans = [[(0, 3, "compute")], [(0, 9, "compute")]]
    traces = [with_work(trace, 100 if trace.rank < 2 else 300, 50) for trace in pipeline(*spans)]
    finding = only(stage_balance, traces)
    assert (finding.subject, finding.values["percent"]) == ("stage2", "50.00")
    # it would compute in two thirds of its time, and its whole step counts as computing
    assert saving(finding) == pytest.approx((0, STEP_MS * MS / 6, STEP_MS * MS / 3))
    near = [with_work(trace, 100 if trace.rank < 2 else 150, 50) for trace in pipeline(*spans)]
    assert found(stage_balance, near) == []
    one_stage = [with_work(trace, 100 + 900 * trace.rank, 50) for trace in job((0, 5, "compute"))]
    assert found(stage_balance, one_stage) == []


def test_ranks_that_wait_longer_for_data() -> None:
    traces = [with_points(trace, interval) for trace, interval in
              zip(job((0, 9, "compute"), ranks=4), (1, 1, 1.4, 1.4), strict=True)]  # fmt: skip
    # mean 1.2: both are 16.7 % above
    assert found(slow_interval, traces) == []
    traces = [with_points(trace, interval) for trace, interval in
              zip(job((0, 9, "compute"), ranks=4), (1, 1, 2, 2), strict=True)]  # fmt: skip
    findings = found(slow_interval, traces)
    assert [finding.subject for finding in findings] == ["rank2", "rank3"]
    assert saving(findings[0]) == pytest.approx((0, 0.5 * MS, 0.6 * MS))
    assert figures(findings[0])["median_of_all"] == 1.5 * MS
    # of the job of four, one is missing
    (finding,) = found(slow_interval, traces[:3])
    assert [item.places for item in finding.evidence if item.what == "missing_ranks"] == [("rank 3",)]
    assert found(slow_interval, traces[:1]) == []


def test_of_many_ranks_some_always_wait_longer_for_data() -> None:
    # steps of 10 ms, and intervals that are twice as long, but short
    for interval, named in ((0.1, []), (0.5, ["rank3"])):
        traces = [with_points(trace, 2 * interval if trace.rank == 3 else interval) for trace in job((0, 9, "compute"), ranks=40)]
        assert [finding.subject for finding in found(slow_interval, traces)] == named
        assert len(found(slow_interval, traces[:4])) == 1


def test_ranks_that_compute_slowly() -> None:
    def traces(rates: Sequence[float]) -> list[Trace]:
        made = job((0, 8, "compute"), (8, 9, "allreduce"), ranks=len(rates))
        return [with_work(trace, 100, rate) for trace, rate in zip(made, rates, strict=True)]

    finding = only(slow_card, traces([50, 50, 50, 30]))
    assert (finding.subject, finding.values["percent"]) == ("rank3", "33.33")
    # 9 of 10 ms are no communication
    assert saving(finding) == pytest.approx((0, 1.5 * MS, 3 * MS))
    assert (figures(finding)["work_rate"], figures(finding)["mean_of_all"], figures(finding)["median_of_all"]) == (30, 45, 50)
    # 20 % is not more than 20 %
    assert found(slow_card, traces([55, 55, 40])) == []
    assert found(slow_card, traces([50])) == []


def linked(speeds: dict[tuple[int, int], float], ranks: int = 4) -> list[Trace]:
    """One transfer of 10 MB per step over every link, at so many GB/s, measured by the rank that receives."""
    traces = []
    for rank in range(ranks):
        rows = [
            {"name": "allreduce", "op_name": "allreduce", "kind": "collective", "group": "g", "step": step, "source": source,
             "destination": target, "transport": "HCCS", "size_mb": 10.0, "transit_ms": 10 / speed, "bandwidth_gbps": speed}
            for step in STEPS for (source, target), speed in speeds.items() if target == rank
        ]  # fmt: skip
        steps = [{"id": step, "start_ns": BASE_NS + step * STEP_MS * MS, "end_ns": BASE_NS + (step + 1) * STEP_MS * MS,
                  "pid": PID, "tid": MAIN} for step in STEPS]  # fmt: skip
        traces.append(build(meta={"rank": rank, "world_size": ranks}, communication_matrix=rows, steps=steps))
    return traces


def test_links_that_are_slow() -> None:
    finding = only(slow_link, linked({(0, 1): 20, (1, 0): 20, (2, 3): 20, (3, 2): 10, (2, 2): 1}))
    assert finding.subject == "3-2-HCCS"
    assert finding.values["percent"] == "42.86"
    # 10 MB at 10 GB/s take 1 ms
    assert saving(finding) == pytest.approx((0, MS * 3 / 14, MS * 3 / 7))
    assert figures(finding)["bandwidth"] == pytest.approx(10) and figures(finding)["mean_of_all"] == pytest.approx(17.5)
    assert finding.evidence[0].steps == tuple(STEPS)
    # 16 is 20 % below 20
    assert found(slow_link, linked({(0, 1): 21, (1, 0): 21, (2, 3): 22, (3, 2): 16})) == []
    # nothing to compare with
    assert found(slow_link, linked({(0, 1): 1})) == []


#: of 8 ranks one is here; its second all-reduce moves as much as the first and takes five times as long
UNEXPLAINED = rank_trace(0, 8, (0, 3, "compute"), (3, 4, "allreduce"), (4, 9, "allreduce"))


def test_collectives_that_their_size_does_not_explain() -> None:
    """Of all-reduces of 1 MiB one takes 1 ms, another 5 ms; where ranks are missing nothing tells why."""
    spans = ((0, 3, "compute"), (3, 4, "allreduce"), (4, 9, "allreduce"))
    finding = only(long_collectives, [UNEXPLAINED, rank_trace(1, 8, *spans)])
    assert figures(finding) == {
        "long_collectives": 5 * MS, "explained_by_size": MS, "one_collective": 5 * MS, "waiting_unknown": 0, "missing_ranks": 6,
    }  # fmt: skip
    # recording all ranks saves nothing: it names the cause, and what is at stake makes it matter
    assert (saving(finding), finding.at_stake, finding.level) == ((0, 0, 4 * MS), True, "high")
    assert finding.values["operation"] == "all-reduce"
    # the first place is the name of the event, which a search on the timeline finds
    place = next(item.places for item in finding.evidence if item.what == "one_collective")
    assert place == ("allreduce", "all-reduce 1.00 MiB", "rank 0")
    assert has_event(UNEXPLAINED, place[0]) and not has_event(UNEXPLAINED, place[1])
    # what it is compared with is named, and the missing ranks stand in one place
    places = {item.what: item.places for item in finding.evidence}
    assert places["explained_by_size"] == place and places["missing_ranks"] == ("ranks 2-7",)
    assert "such as one of 1.00 MiB in 1.00 ms, it would take 1.00 ms at most" in Words("en").of(finding).cause
    assert "data_parallel_communication" in long_collectives.explains
    assert found(long_collectives, job(*spans)) == []
    # a third of a millisecond is 3 % of no step
    assert found(long_collectives, [rank_trace(0, 8, (0, 3, "compute"), (3, 3.1, "allreduce"), (4, 4.35, "allreduce"))]) == []


def test_ranks_recorded_in_different_ways_are_not_compared() -> None:
    traces = [with_points(trace, interval) for trace, interval in zip(job((0, 9, "compute")), (1, 9), strict=True)]
    assert len(found(slow_interval, traces)) == 1
    meta = traces[1].table("meta")
    assert meta is not None
    marked = pl.concat([meta, pl.DataFrame({"key": ["torch_version"], "value": ['"1.8"']})])
    tables = {name: frame for name in traces[1] if (frame := traces[1].table(name)) is not None}
    assert found(slow_interval, [traces[0], Trace(traces[1].source, {**tables, "meta": marked})]) == []


def test_a_healthy_job_hears_nothing() -> None:
    spans = ((0, 9, "compute"), (5, 9.5, "allreduce"))
    healthy = [with_work(with_points(trace, 0.1), 100, 50) for trace in job(*spans, ranks=4)]
    assert [finding for rule in RULES for finding in found(rule, healthy)] == []
    balanced = pipeline([(0, 9, "compute"), (8, 9.5, "receive")], [(0, 9, "compute"), (8, 9.5, "receive")])
    assert [finding for rule in RULES for finding in found(rule, [with_work(trace, 100, 50) for trace in balanced])] == []


def test_all_that_is_said_has_words_in_both_languages() -> None:
    first: list[Span] = [(0, 2, "compute"), (2, 5, "allreduce"), (5, 8, "receive")]
    stages = pipeline(first, [(0, 6, "compute"), (6, 8, "receive"), (8, 10, "allreduce")])
    stages = [with_work(trace, 100 + 100 * trace.rank, 50) for trace in stages][:3]
    intervals = [with_points(trace, 1 + trace.rank) for trace in job((0, 6, "compute"), (5, 9, "allreduce"))]
    cards = [with_work(trace, 100, 50 - 30 * trace.rank) for trace in job((0, 6, "compute"), (5, 9, "allgather"))]
    unnamed = job((0, 6, "compute"), (5, 9, UNNAMED))
    findings = [
        finding
        for traces in (stages, intervals, cards, unnamed, linked({(0, 1): 20, (1, 0): 5}), [UNEXPLAINED])
        for rule in RULES
        for finding in found(rule, traces)
    ]
    assert {finding.rule for finding in findings} == {rule.name for rule in RULES}
    for finding in findings:
        for language in ("en", "zh"):
            text = Words(language, TEXTS).of(finding)
            assert "{" not in f"{text.title}{text.cause}{text.remedy}{text.patch}", finding.rule
        assert all(item.what in CATALOGUES["en"].evidence for item in finding.evidence), finding


@pytest.mark.parametrize(
    "sample", ["kineto/cpu_only_rank34.json.gz", "kineto/cuda_alexnet.json.gz", "kineto/rocm_mi250_minitoy.json.gz"]
)
def test_recorded_runs_without_pipelines_and_links_hear_nothing(sample: str) -> None:
    path = shared(sample)
    names = {rule.name for rule in RULES} | {rule.name for rule in OF_PIPELINES}
    assert [finding.id for finding in advise(steplens.open(path)).findings if finding.rule in names] == []


def test_rules_that_do_not_apply_are_not_said_to_be_silent() -> None:
    """Unsafe device times of a run of one rank are no reason to list rules about stages."""
    unsafe = frame_of([HealthFinding("lost", WARNING, 1, "tasks are lost", STEP_DEVICE_TIMES)])

    def with_health(traces: list[Trace]) -> Run:
        tables = [{name: frame for name in one if (frame := one.table(name)) is not None} for one in traces]
        return run_of([Trace(Path("x"), {**own, "health": unsafe}) for own in tables])

    rules = {rule.name for rule in RULES}
    spans: tuple[Span, ...] = ((0, 6, "compute"), (5, 9, "allreduce"))
    alone = advise(with_health(job(*spans, ranks=1)))
    assert not rules & {one.rule for one in alone.silenced}
    several = advise(with_health(job(*spans)))
    assert rules & {one.rule for one in several.silenced} == {"data_parallel_communication"}
    lacking = advise(with_health([rank_trace(0, 8, *spans)]))
    assert rules & {one.rule for one in lacking.silenced} == {"data_parallel_communication", "long_collectives"}


def test_a_slow_rank_whose_data_is_late_is_told_once() -> None:
    """The rank that waits for its data also arrives late at every collective; that is said of the late rank."""
    assert "slow_interval" in slow_rank.explains
    advice = advise(run_of(job((0, 9, "compute"), (5, 9.5, "allreduce"), ranks=2)))
    assert not {finding.rule for finding in advice.findings} & {rule.name for rule in RULES}


def test_what_a_rank_does_beyond_the_others_explains_that_it_is_late() -> None:
    """A loader costs 6 ms on rank 0 and 2 ms on rank 1: 4 ms of what rank 0 is late, and all of the 3 ms that its data is."""
    assert all("slow_interval" in rule.explains for rule in (loader_too_slow, loader_without_workers))

    def priced(name: str, likely_ms: float, *ranks: int) -> Finding:
        return Finding(name, 0.9, (), Saving(0, likely_ms * MS, likely_ms * MS), STEP_MS * MS, ranks=ranks)

    costs = {0: 6, 1: 2}
    rules = [
        Rule("loader", lambda facts: [priced("loader", costs[facts.trace.rank])], explains=("late_data", "late")),
        Rule("late_data", judge_run=lambda run, facts: [priced("late_data", 3, 0)], explains=("late",)),
        Rule("late", judge_run=lambda run, facts: [priced("late", 5, 0)]),
    ]
    advice = advise(run_of(job((0, 9, "compute"))), rules)
    savings = {each.id: each.saving.likely_ns for each in advice.findings if each.saving}
    assert savings == {"loader": 6 * MS, "late": 1 * MS}
    late = next(each for each in advice.findings if each.id == "late")
    assert late.evidence[-1] == Evidence("explained_elsewhere", 4 * MS, "ns", places=("loader",))


def test_the_line_that_makes_a_rank_late_is_what_to_change() -> None:
    """The lines of ``rank_differences``, the longest first: it is named where it is much of what the rank is late."""
    lines = pl.DataFrame(
        {"line": ["train.py(7): augment"], "self_ns": [15e6], "other_self_ns": [1e6], "more_ns": [14e6],
         "device_self_ns": [0.0], "other_device_self_ns": [0.0], "more_device_ns": [0.0]}
    )  # fmt: skip
    mine, others = largest_difference(lines, SlowRank(1, 15_000_000, (1, 2), 2, 0.01))
    assert (mine.what, mine.value, mine.places) == ("in_one_line", 15e6, ("rank 1", "train.py(7): augment"))
    assert (others.what, others.value) == ("others_in_that_line", 1e6)
    assert largest_difference(lines, SlowRank(1, 60_000_000, (1, 2), 2, 0.01)) == []
    values = {"rank": 1, "times": 2, "of": 2, "case": "one_line", "line": "train.py(7): augment"}
    finding = Finding(rule="slow_rank", subject="rank1", confidence=0.9, evidence=(mine, others), values=values)
    for language in ("en", "zh"):
        text = Words(language).of(finding)
        assert all("train.py(7): augment" in part for part in (text.title, text.cause, text.remedy))
