"""The first page of a run, its steps and its ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

import polars as pl
from fastapi import Query, Request
from pydantic import BaseModel, with_config
from typing_extensions import NotRequired, TypedDict

from steplens.advice.texts import LANGUAGES
from steplens.advice.words import Words
from steplens.analysis.cluster.side_by_side.contents import rank_contents
from steplens.analysis.device.idle import idle_of_step
from steplens.analysis.device.step_work import step_work
from steplens.analysis.steps.step_distribution import step_distribution
from steplens.analysis.steps.summary import StepSummary
from steplens.analysis.verdict import whole_of_shares
from steplens.analysis.verdict_words import Verdict, collective_name
from steplens.server import advice
from steplens.server.advice import FindingShown, Together
from steplens.server.http import documented
from steplens.server.http.errors import path_text
from steplens.server.many.kept_route import kept_router, leave_unkept
from steplens.server.requests import Chosen, json_response
from steplens.server.runs import OpenedRun
from steplens.server.tables import columns, tables
from steplens.trace import health_words
from steplens.trace.building.checks.ranks import recorded_ranks
from steplens.trace.building.framework import framework_version, trace_framework, trace_recorder
from steplens.trace.health import group_of_finding
from steplens.trace.health_words import translate_message
from steplens.trace.schema import KIND_COMMUNICATION
from steplens.trace.trace import Trace

router = kept_router("/api/runs/{run}", "overview")

_TOP = 8
#: calls per step of two means that differ by no more are the same
_SAME_CALLS = 1e-6
_ADVICE = 3
#: how long the first page waits for the advice, which takes longest where there are millions of events
_PATIENCE_S = 2.0


class StepLeftOut(BaseModel):
    """A step that figures are not of: its number, and why ("cut" or "warm-up")."""

    step: int
    reason: str


class LongStepShown(BaseModel):
    """A step that takes much longer than the others; ``factor``: how many times the median of its trace."""

    rank: int | None
    step: int
    step_time_ns: float
    factor: float


class StepFigures(BaseModel):
    """A step over the chosen steps, in ns; see ``analysis.steps.summary.StepSummary``. ``sentence`` says which steps.

    ``chosen``, ``left_out``: the steps that the figures are of and the others, of the first trace that has steps; ``few``: fewer
    than three are left. ``usual``, ``usual_on_device``: the steps whose means the parts of host and device are,
    ``outliers`` those that stand out and are no part of these.
    """

    steps: int
    device_steps: int
    step_time_ns: float | None
    quartiles_ns: tuple[float, float] | None
    host_ns: float | None
    device_ns: float | None
    differs: str
    host: dict[str, float]
    device: dict[str, float]
    gradient_sync_ns: float
    overlapped_communication_ns: float
    behind: bool
    sentence: str
    chosen: list[int]
    left_out: list[StepLeftOut]
    few: bool
    ranks: int
    distinct: int
    long_steps: list[LongStepShown]
    queue_wait: dict[str, float]
    usual: list[int]
    usual_steps: int
    usual_on_device: list[int]
    outliers: list[int]
    host_mean_ns: float | None
    device_mean_ns: float | None
    step_mean_ns: float | None


class VerdictShown(BaseModel):
    """What holds a step up; see ``analysis.verdict_words.Verdict``.

    ``sentence`` is the verdict in English; ``sentences``: language -> the verdict in it.
    """

    kind: str
    share: float
    of_device: bool
    busy: float | None
    device: str
    leading: str
    leading_share: float
    cause: str
    cause_share: float
    phase: str
    phase_share: float
    name: str
    name_share: float
    is_behind: bool
    rank: int | None
    confidence: str
    doubts: list[str]
    table: str
    sentence: str
    sentences: dict[str, str]


class WaitingStepsShown(BaseModel):
    """Usual steps of which some wait for their batch; see ``analysis.data_loading.data_wait.WaitingSteps``."""

    steps: list[int]
    of: int
    wait_ns: float
    ready_ns: float
    since: int | None


class Rank(BaseModel):
    """One trace of the run.

    Attributes:
        trace: its number, which addresses name.
        rank: of its process in the job; None where the source does not say.
        path: of the run directory or file.
        format: how it was read.
        framework: "PyTorch", "MindSpore" or empty where nothing tells, with its version where that is known.
        recorder: the profiler: "steplens", "torch.profiler", "torch_npu.profiler", "MindSpore", or empty.
        device_kind: "CPU", "CUDA", "ROCM" or "NPU".
        origin_ns: Unix time from which its moments count, as text; the same for all traces on one clock.
        devices: what ran its tasks, with the product's name where that is known.
        tables: recorded tables that it has, and their rows.
        streams: streams of its devices on which tasks ran.
        steps: how many steps figures are of.
        step_ns: the step time, median; None without steps.
        parts: phases of the host and parts of the device, ns: means over the usual steps (``figures.usual``); of a device that
            was not recorded none.
        figures: of a step over its chosen steps.
        peak_bytes: most memory allocated on one device; None where memory was not recorded.
        loads_itself: whether its training loop loads the data itself, and so waits for nobody.
        waiting: which of its usual steps wait for data; None where all do or none does.
    """

    trace: int
    rank: int | None
    path: str
    format: str
    framework: str
    recorder: str
    origin_ns: str
    device_kind: str
    devices: list[str]
    tables: dict[str, int]
    streams: int
    steps: int
    step_ns: float | None
    parts: dict[str, float]
    figures: StepFigures
    peak_bytes: int | None
    loads_itself: bool
    waiting: WaitingStepsShown | None


@with_config(documented.MORE_COLUMNS)
class Step(TypedDict):
    """A step with its parts, ns by the name of the part."""

    trace: NotRequired[int]
    rank: NotRequired[int]
    step: int | None
    start_ns: int | None
    duration_ns: int | None
    complete: bool


class WorkShown(BaseModel):
    """A kernel, collective or operator of a step; see ``analysis.device.step_work``. ``label`` is what people call it.

    ``calls_least`` and ``calls_most`` are of one step of one rank.
    """

    name: str
    label: str
    kind: str
    step_ns: float
    calls: float
    calls_least: int
    calls_most: int
    ratio: float


class Spread(BaseModel):
    """How the lengths of the steps spread; see ``analysis.steps.step_distribution``. Outliers are rows of the table ``steps``."""

    count: int
    mean_ns: float | None
    std_ns: float | None
    min_ns: float | None
    median_ns: float | None
    p90_ns: float | None
    p99_ns: float | None
    max_ns: float | None
    edges_ns: list[float]
    counts: list[int]
    outliers: list[dict[str, Any]]


class Steps(BaseModel):
    """Every step with its phases and what they leave out, and their spread.

    Rows of ``analysis.steps.times.step_times``, moments from the origin.
    """

    steps: Annotated[list[dict[str, Any]], documented.as_type(list[Step])]
    spread: Spread


class Overview(BaseModel):
    """The first page.

    Attributes:
        verdict: what holds a step up.
        figures: of a step over the chosen steps of all traces.
        ranks: the traces.
        recorded_ranks: how many ranks of the job are here; job_ranks: how many it has, as far as the traces tell.
        steps: how many steps of all of them figures are of.
        step_ns: the step time, median; None without steps.
        parts: phases of the host and parts of the device, ns: means over the usual steps; of a device that was not recorded none.
        work: what takes the most time of a step.
        work_steps: of how many steps that is; 0 where it is a sum of the whole recording.
        work_trace: the trace that alone it is of, where ranks call different operators and the verdict names one; None: of all.
        idle: idle time of a step by cause, ns; it adds up to ``idle_ns`` of ``parts``.
        base_ns: what shares of the device's parts are of, as in the verdict; a mean, as they are.
        pipeline: what holds up the data pipeline, per trace: trace, and id, name and queue's usage of an operation of MindSpore;
            of PyTorch the number of a loader as id and its stage as name.
        advice: the first findings.
        findings: how many findings there are.
        together_ns: what all of them save together at most; likely_together_ns: probably; together, at_stake: what there is to
            say of that (``server.advice.AdviceShown``).
        judged: whether the advice was there in time; if not, ask ``advice``, which waits for it.
        health: severity -> how many findings about the data; what several traces share is one.
    """

    verdict: VerdictShown
    figures: StepFigures
    ranks: list[Rank]
    recorded_ranks: int
    job_ranks: int
    steps: int
    step_ns: float | None
    parts: dict[str, float]
    work: list[WorkShown]
    work_steps: int
    work_trace: int | None
    idle: dict[str, float]
    base_ns: float
    pipeline: list[dict[str, Any]]
    advice: list[FindingShown]
    findings: int
    together_ns: float
    likely_together_ns: float
    together: Together
    at_stake: bool
    judged: bool
    health: dict[str, int]


class HealthFinding(BaseModel):
    """One finding about the data itself, of one trace or of the run; see ``trace.health``.

    ``texts``: the message in other languages than English. ``group``: findings with the same number are one finding, about
    several traces (``trace.health.group_of_finding``).
    """

    check: str
    severity: str
    count: int
    message: str
    texts: dict[str, str]
    unsafe: list[str]
    source: str
    group: int


@router.get("/overview")
def overview(chosen: Chosen, request: Request) -> Overview:
    """The first page: ranks, where a step goes, what takes the most, and what to do first."""
    judged = advice.advise_on_run_within(chosen, _PATIENCE_S)
    if judged is None:
        leave_unkept(request)
    findings = judged.findings if judged is not None else ()
    health = tables.table_frame(chosen, "health")
    verdict = chosen.answer(("verdict",), chosen.run.verdict)
    summary = verdict.summary
    idle = chosen.answer(("idle of a step",), lambda: idle_of_step(chosen.run.traces, summary.device.get("idle_ns", 0.0)))
    work, work_trace = _work_of_verdict(chosen, verdict.rank)
    recorded, job_ranks = recorded_ranks(chosen.run.traces)
    return Overview(
        verdict=_to_verdict_shown(verdict),
        figures=step_figures(summary),
        ranks=[_describe_rank(chosen, number) for number in range(len(chosen.run.traces))],
        recorded_ranks=len(recorded),
        job_ranks=job_ranks,
        steps=summary.steps,
        step_ns=summary.step_time_ns,
        parts=step_parts(summary),
        work=[_to_work_shown(row) for row in work.head(_TOP).iter_rows(named=True)],
        work_steps=int(work["steps"][0]) if work.height else 0,
        work_trace=work_trace,
        idle=idle,
        base_ns=whole_of_shares(summary),
        pipeline=[row for number in range(len(chosen.run.traces)) for row in _pipeline_bottlenecks(chosen, number)],
        advice=[advice.finding_shown(finding) for finding in findings[:_ADVICE]],
        findings=len(findings),
        together_ns=judged.together_ns if judged is not None else 0.0,
        likely_together_ns=judged.likely_together_ns if judged is not None else 0.0,
        together=advice.together_of(findings, judged.together_ns) if judged is not None else "",
        at_stake=advice.any_at_stake(findings),
        judged=judged is not None,
        health=dict(sorted(Counter(severity for severity, *_ in _health_groups(health)).items())),
    )


@router.get("/ranks")
def ranks(chosen: Chosen) -> list[Rank]:
    """The traces of the run: where each comes from, what it holds, and how its steps went."""
    return [_describe_rank(chosen, number) for number in range(len(chosen.run.traces))]


@router.get("/steps", response_model=Steps)
def steps(chosen: Chosen, trace: Annotated[int | None, Query(ge=0, le=1 << 31, description="only of this trace")] = None) -> Any:
    """Every step with its phases, how their lengths spread, and which stand out."""
    step_rows = tables.table_frame(chosen, "steps", trace)
    distribution = step_distribution(step_rows)
    numbers = {name: getattr(distribution, name) for name in Spread.model_fields}
    spread = {**numbers, "outliers": columns.json_records(distribution.outliers)}
    return json_response({"steps": columns.json_records(step_rows), "spread": spread})


@router.get("/health")
def health(chosen: Chosen) -> list[HealthFinding]:
    """What is doubtful about the data, and what not to trust because of it."""
    findings = tables.table_frame(chosen, "health")
    groups = _health_groups(findings)
    return [
        HealthFinding(
            **{
                **row,
                "group": groups[_group_of(row)],
                "unsafe": [word for word in (row["unsafe"] or "").split(", ") if word],
                "texts": {language: translate_message(row["message"], language) for language in health_words.LANGUAGES},
            }
        )
        for row in findings.to_dicts()
    ]


def _health_groups(health: pl.DataFrame) -> dict[tuple[str, str, str], int]:
    """The groups of the findings about the data, each with its number, from 0 in order of their first finding."""
    groups: dict[tuple[str, str, str], int] = {}
    for row in health.iter_rows(named=True):
        groups.setdefault(_group_of(row), len(groups))
    return groups


def _group_of(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return group_of_finding(row["severity"], row["check"], row["message"])


def step_parts(summary: StepSummary) -> dict[str, float]:
    """Mean phases of the host and parts of the device of a step, ns; without those of a device that was not recorded."""
    host_parts = dict(summary.host)
    if summary.host and not summary.host_complete:
        # what the known phases leave is not told apart
        host_parts["host_mean_ns"] = summary.host_mean_ns or 0.0
    if "backward_ns" in summary.host:
        host_parts["gradient_sync_ns"] = summary.gradient_sync_ns
    host_parts.update(summary.device)
    if summary.device:
        host_parts["overlapped_communication_ns"] = summary.overlapped_communication_ns
    return host_parts


def step_figures(summary: StepSummary) -> StepFigures:
    """A step over the chosen steps, as the pages have it."""
    choice = next((choice for choice in summary.chosen if choice.steps), None)
    which: dict[str, Any] = {
        "sentence": summary.sentence(),
        "chosen": choice.steps if choice else [],
        "left_out": choice.left_out if choice else [],
        "few": any(choice.few for choice in summary.chosen),
    }
    return StepFigures.model_validate({**vars(summary), **which}, from_attributes=True)


def _describe_rank(chosen: OpenedRun, number: int) -> Rank:
    trace, source = chosen.trace(number), chosen.run.sources[number]
    contents = rank_contents(trace)
    summary, waiting = contents.summary, contents.waiting
    return Rank(
        trace=number,
        rank=trace.rank if trace.rank >= 0 else None,
        path=path_text(source.path),
        format=source.format,
        framework=" ".join(filter(None, (trace_framework(trace), framework_version(trace)))),
        recorder=trace_recorder(trace, source.format),
        origin_ns=str(chosen.origins[number]),
        device_kind=contents.device_kind,
        devices=list(contents.devices),
        tables=contents.rows,
        streams=contents.streams,
        steps=summary.steps,
        step_ns=summary.step_time_ns,
        parts=step_parts(summary),
        figures=step_figures(summary),
        peak_bytes=contents.peak_bytes,
        loads_itself=contents.loads_itself,
        waiting=WaitingStepsShown(**vars(waiting)) if waiting is not None else None,
    )


def _to_verdict_shown(verdict: Verdict) -> VerdictShown:
    sentences = {language: Words(language).verdict(verdict) for language in LANGUAGES}
    return VerdictShown.model_validate({**vars(verdict), "sentence": verdict.sentence(), "sentences": sentences})


def _to_work_shown(row: dict[str, Any]) -> WorkShown:
    label = collective_name(row["name"]) if row["kind"] == KIND_COMMUNICATION else row["name"]
    return WorkShown(label=label, **{name: row[name] for name in WorkShown.model_fields if name != "label"})


def _pipeline_bottlenecks(chosen: OpenedRun, number: int) -> list[dict[str, Any]]:
    return [{"trace": number, **vars(bottleneck)} for bottleneck in rank_contents(chosen.trace(number)).bottlenecks]


def _work_of_verdict(chosen: OpenedRun, rank: int | None) -> tuple[pl.DataFrame, int | None]:
    """What takes the most of a step, and the trace that alone it is of; None: of all.

    Where ranks call different operators, a mean over them is of none: it is that of the verdict's rank, if it names one.
    """
    work = chosen.frame_of_run(step_work)
    of_rank = [number for number, trace in enumerate(chosen.run.traces) if rank is not None and trace.rank == rank]
    if len(of_rank) != 1 or len(chosen.run.traces) == 1 or not work.height:
        return work, None
    (number,) = of_rank
    alone = chosen.frame_of_trace(_work_of_trace, number)
    if not alone.height or not alone["steps"][0]:
        return work, None
    both = work.head(_TOP).join(alone, on=["name", "kind"], how="left", suffix="_alone")
    differs = (pl.col("calls") - pl.col("calls_alone").fill_null(0)).abs() > _SAME_CALLS
    return (alone, number) if both.select(differs.any()).item() else (work, None)


def _work_of_trace(trace: Trace) -> pl.DataFrame:
    return step_work([trace])
