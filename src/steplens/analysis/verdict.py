"""The verdict: in one sentence, what holds a step up, how sure that is, and where to look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from steplens.analysis.cluster.measured_communication import is_measured
from steplens.analysis.cluster.stragglers.exposed_waits import exposed_waits
from steplens.analysis.cluster.stragglers.own_work import HOST as STRAGGLING_HOST
from steplens.analysis.cluster.stragglers.own_work import STAGE as STRAGGLING_STAGE
from steplens.analysis.cluster.stragglers.own_work import find_stragglers
from steplens.analysis.cluster.stragglers.slow_messages import find_slow_links
from steplens.analysis.cluster.stragglers.slow_rank import name_slow_rank
from steplens.analysis.data_loading.data_wait import loads_in_loop, operators_of_loading, waiting_steps
from steplens.analysis.device.idle import DATA, DEVICE_CAUSES, HOST_CAUSES, NOT_RECORDED, PYTHON, SYNCHRONIZATION, idle_of_step
from steplens.analysis.device.idle import UNKNOWN as IDLE_UNKNOWN
from steplens.analysis.device.idle_activity import idle_activity
from steplens.analysis.steps.choice import chosen_steps
from steplens.analysis.steps.summary import StepSummary, summarize_steps
from steplens.analysis.steps.times import chosen_step_times
from steplens.analysis.tools.joined_rows import join_rows
from steplens.analysis.tools.pipeline import find_pipeline
from steplens.analysis.verdict_words import (
    CLOSE,
    COMMUNICATION,
    COMPUTE,
    COPY,
    FASTER,
    FEW,
    FILLED,
    GUESS,
    HOST,
    IDLE,
    INPUT,
    LIKELY,
    NOTHING,
    PIPELINE,
    RANK,
    RANKS,
    SLOW_HOST,
    SLOW_LINK,
    SLOW_STAGE,
    SPREAD,
    SURE,
    SYNCHRONIZING,
    UNKNOWN,
    CloseCause,
    Verdict,
)
from steplens.trace.building.checks.ranks import recorded_ranks
from steplens.trace.building.checks.trend import STEPS_GET_FASTER
from steplens.trace.building.devices import device_kind
from steplens.trace.health import (
    EVERYTHING,
    HOST_AGAINST_DEVICE,
    OVERLAP,
    STEP_DEVICE_TIMES,
    STEP_PHASES,
    STEP_TIMES,
    WARNING,
    unsafe,
)
from steplens.trace.schema import CORE_CPU, KIND_COMPUTE
from steplens.trace.trace import Trace

#: what takes this share of a step holds it up
_MATTERS = 0.15
#: computing of this share is what a step is made of
_MOSTLY = 0.6
#: a rank that the others wait for this share of a step
_HOLDS_UP = 0.1
#: another cause with more than this share of the largest one may be it as well
_CLOSE = 0.8
#: quartiles of the step time that are farther apart, as a share of the median
_WIDE = 0.2
#: one operation, or one category, that is most of what it belongs to
_LEADS = 0.5
#: tasks overlap that take together so much longer than a device computes
_ADDS_UP = 0.01
#: which table shows more, by kind
_TABLES = {
    COMPUTE: "kernels", COMMUNICATION: "communication", COPY: "kernels", INPUT: "pipeline", HOST: "idle",
    SYNCHRONIZING: "idle", IDLE: "idle", RANK: "waits", SLOW_HOST: "ranks", SLOW_STAGE: "ranks", SLOW_LINK: "waits",
    PIPELINE: "waits", NOTHING: "steps", UNKNOWN: "health",
}  # fmt: skip
#: which causes of idle time make a kind: the host launches late, or the device idles although its next task is there
_CAUSES = {HOST: HOST_CAUSES, IDLE: (*DEVICE_CAUSES, IDLE_UNKNOWN)}
_DEVICE_WORDS = {"CUDA": "GPU", "ROCM": "GPU", "NPU": "NPU", CORE_CPU: "CPU"}
#: where of more of the exposed communication nobody knows whether it waits, waiting is not told from moving
_UNTOLD = 0.2
_STRAGGLERS = {STRAGGLING_HOST: SLOW_HOST, STRAGGLING_STAGE: SLOW_STAGE}
_DOUBTFUL = (EVERYTHING, STEP_TIMES, STEP_PHASES, STEP_DEVICE_TIMES, OVERLAP, HOST_AGAINST_DEVICE)


def verdict(traces: Sequence[Trace], summary: StepSummary | None = None) -> Verdict:
    """What holds a step of a run up, from the figures of its chosen steps.

    On an accelerator the parts of the device period decide, and the causes of its idle time; on a CPU the phases of the host
    (Python as far as the CPU is idle meanwhile) and computing. What takes at least 15 % of the step holds it up, the largest
    first: a host, a rank, a stage or a link that the others wait for (10 %), exposed communication (in a pipeline what moves
    data; what its ranks wait for each other stands apart), exposed copies, idle time while the loader is waited for (input),
    while a synchronisation is waited for, while the host is late (host), and although the next task had been launched (idle: gaps
    between kernels, waits on the device, launches that were not recorded). Where none does and computing takes 60 %, it is
    compute bound. Waits on the device are never the host's.

    Args:
        traces: of one run.
        summary: the figures of a step of these traces, where they are known already.
    """
    summary = summary or summarize_steps(traces)
    accelerated = [trace for trace in traces if trace.has_accelerator]
    device = next((_DEVICE_WORDS.get(kind, kind) for trace in accelerated or traces if (kind := device_kind(trace))), "CPU")
    of_device = bool(accelerated) and summary.device_ns is not None
    whole_ns = whole_of_shares(summary)
    parts = {name: value / whole_ns for name, value in summary.device.items()} if whole_ns else {}
    busy = parts.get("computing_ns") if summary.device else None
    if not summary.steps or not (summary.host or summary.device):
        return Verdict(UNKNOWN, 0.0, of_device, device, _TABLES[UNKNOWN], summary, confidence=GUESS)
    slow = _waits_for(traces, summary)
    idle = _idle_shares(traces, summary)
    shares = _shares_on_device(parts, idle) if of_device else _shares_on_cpu(summary, parts, idle)
    waits = _shares_of_pipeline(traces) if of_device else None
    if waits is not None:
        shares |= {COMMUNICATION: waits.moving, PIPELINE: waits.waiting}
    largest = sorted(shares, key=lambda name: shares[name], reverse=True)
    first = largest[0]
    judged = Verdict(NOTHING, shares[first], of_device, device, _TABLES[NOTHING], summary, busy, is_moving=waits is not None)
    # in a pipeline what others do meanwhile is waiting for it
    beside = max(value for name, value in shares.items() if name not in (HOST, PIPELINE))
    if slow is not None and slow.share >= max(_HOLDS_UP, 0.5 * beside):
        judged = replace(judged, **vars(slow))
    elif shares[first] >= _MATTERS:
        judged = replace(judged, kind=first)
        close_kinds = [kind for kind in largest[1:] if shares[kind] > _CLOSE * shares[first]]
        judged = replace(judged, close=tuple(CloseCause(kind, shares[kind], _largest_idle(kind, idle)) for kind in close_kinds))
        if first == COMMUNICATION:
            judged = _with_communication(judged, traces)
        elif first == PIPELINE and waits is not None:
            judged = replace(judged, stages=waits.stages, batches=waits.batches, implied=waits.implied)
        elif first == INPUT:
            judged = _with_loading(judged, traces)
        elif first in _CAUSES:
            judged = _with_cause(judged, traces, idle)
    elif busy is not None and busy >= _MOSTLY:
        leading, leading_share, leading_ns = _leading_category(traces)
        # where it adds up to what the device is busy with, the table of operators shows the same time
        if leading_ns > (1 + _ADDS_UP) * leading_share * summary.device["computing_ns"]:
            leading_ns = 0.0
        judged = replace(judged, kind=COMPUTE, share=busy, leading=leading, leading_share=leading_share, leading_ns=leading_ns)
    return _with_confidence(replace(judged, table=_TABLES[judged.kind]), traces)


def _shares_on_device(parts: Mapping[str, float], idle: Mapping[str, float]) -> dict[str, float]:
    return {
        COMMUNICATION: parts.get("exposed_communication_ns", 0.0),
        COPY: parts.get("exposed_copy_ns", 0.0),
        INPUT: idle.get(DATA, 0.0),
        SYNCHRONIZING: idle.get(SYNCHRONIZATION, 0.0),
        **{kind: sum(idle.get(cause, 0.0) for cause in causes) for kind, causes in _CAUSES.items()},
    }


def _shares_on_cpu(summary: StepSummary, parts: Mapping[str, float], idle: Mapping[str, float]) -> dict[str, float]:
    host = {name: value / summary.host_mean_ns for name, value in summary.host.items()} if summary.host_mean_ns else {}
    synchronising = summary.gradient_sync_ns / summary.host_mean_ns if summary.host_mean_ns else 0.0
    # while a collective is in flight, Python waits for it
    python = min(host.get("python_ns", 0.0), parts.get("idle_ns", 1.0))
    return {
        INPUT: host.get("data_wait_ns", 0.0),
        COMMUNICATION: max(parts.get("exposed_communication_ns", 0.0), synchronising),
        SYNCHRONIZING: host.get("device_wait_ns", 0.0),
        HOST: python if summary.host_complete else idle.get(NOT_RECORDED, 0.0),
    }


def _idle_of_kind(kind: str, idle: Mapping[str, float]) -> dict[str, float]:
    return {cause: idle[cause] for cause in _CAUSES[kind] if cause in idle}


def _largest_idle(kind: str, idle: Mapping[str, float]) -> str:
    """The largest of the causes of idle time that are not the host's; empty of another kind."""
    lengths = _idle_of_kind(kind, idle) if kind == IDLE else {}
    return max(lengths, key=lambda cause: lengths[cause], default="")


def _with_cause(judged: Verdict, traces: Sequence[Trace], idle: Mapping[str, float]) -> Verdict:
    """The verdict with the largest of the causes of its idle time; where the host is late, with what it did meanwhile."""
    lengths = _idle_of_kind(judged.kind, idle)
    if not lengths:
        return replace(judged, cause=PYTHON if judged.kind == HOST else IDLE_UNKNOWN)
    cause = max(lengths, key=lambda name: lengths[name])
    judged = replace(judged, cause=cause, cause_share=lengths[cause] / sum(lengths.values()))
    if judged.kind != HOST:
        return judged
    activity = idle_activity(traces)
    name, name_share = activity.name, activity.name_share
    # of Python that was not recorded only the place is known
    if is_behind := cause == PYTHON and activity.behind_share > name_share:
        name, name_share = activity.behind, activity.behind_share
    return replace(
        judged,
        phase=activity.phase, phase_share=activity.phase_share, name=name, name_share=name_share, is_behind=is_behind,
    )  # fmt: skip


def _with_loading(judged: Verdict, traces: Sequence[Trace]) -> Verdict:
    """The verdict with whether the loop loads its data itself, and how much of that is operators."""
    if not all(map(loads_in_loop, traces)):
        return judged
    loading_ns = operators_ns = 0
    for trace in traces:
        steps = chosen_step_times(trace)
        loading_ns += int(steps["data_wait_ns"].sum() or 0)
        mine = operators_of_loading(trace).join(steps.select("step"), on="step", how="semi")
        operators_ns += int(mine["self_ns"].sum() or 0)
    share = min(operators_ns / loading_ns, 1.0) if loading_ns else 0.0
    return replace(judged, loads_itself=True, operators_share=share)


def _with_communication(judged: Verdict, traces: Sequence[Trace]) -> Verdict:
    """The verdict with the collective that leads, and whether waiting and transfer are known."""
    leading, leading_share = _leading_collective(traces)
    ranks, size = recorded_ranks(traces)
    is_told_apart = len(ranks) >= size or any(is_measured(trace) for trace in traces)
    return replace(judged, leading=leading, leading_share=leading_share, told_apart=is_told_apart)


@dataclass(frozen=True)
class _Slow:
    """What the others wait for; attributes as of ``Verdict``."""

    kind: str
    share: float
    rank: int | None = None
    slow_host: str = ""
    slow_stage: int = 0
    slower: float = 0.0
    link: tuple[str, ...] = ()
    is_link_of_ranks: bool = False


def _waits_for(traces: Sequence[Trace], summary: StepSummary) -> _Slow | None:
    """The host, rank, stage or link that the others wait for again and again, the one that costs most."""
    if len({trace.rank for trace in traces if trace.rank >= 0}) < 2 or not summary.step_time_ns:
        return None
    steps = {step for choice in summary.chosen for step in choice.steps}
    candidates = [
        _Slow(
            kind,
            straggler.more_ns / summary.step_time_ns,
            slow_host=straggler.host,
            slow_stage=straggler.stage,
            slower=straggler.percent_longer / 100,
        )
        for straggler in find_stragglers(traces, steps, summary.step_time_ns)
        if (kind := _STRAGGLERS.get(straggler.kind)) is not None
    ]
    for link in find_slow_links(traces, steps, summary.step_time_ns):
        ends, is_of_ranks = link.hosts or tuple(map(str, link.ranks)), not link.hosts
        share, times = min(link.lost_ns / summary.step_time_ns, 1.0), link.transfer_ns / link.usual_ns
        candidates.append(_Slow(SLOW_LINK, share, slower=times, link=ends, is_link_of_ranks=is_of_ranks))
    slow = name_slow_rank(traces, steps, summary.step_time_ns)
    if slow is not None:
        candidates.append(_Slow(RANK, slow.hold_up_ns / summary.step_time_ns, slow.rank))
    return max(candidates, key=lambda candidate: candidate.share, default=None)


@dataclass(frozen=True)
class _PipelineShares:
    """What communication takes of the steps of a pipeline: moving data, waiting for other ranks; what its bubble is."""

    moving: float
    waiting: float
    stages: int
    batches: int
    implied: float


def _shares_of_pipeline(traces: Sequence[Trace]) -> _PipelineShares | None:
    """None of what is no pipeline, and where much of what ranks wait for is not known."""
    job_pipeline = find_pipeline(traces)
    if job_pipeline is None:
        return None
    sums = exposed_waits(traces).select(pl.exclude("rank", "step").sum()).row(0, named=True)
    if not sums["period_ns"] or sums["unknown_ns"] > _UNTOLD * sums["exposed_ns"]:
        return None
    names = ("moving", "waiting", "computing", "collective_moving", "micro_batch_moving")
    moving, waiting, computing, collectives, of_batches = (sums[f"{name}_ns"] / sums["period_ns"] for name in names)
    implied = job_pipeline.implied_wait(computing, of_batches, moving - collectives)
    return _PipelineShares(moving, waiting, job_pipeline.stages, job_pipeline.batches, implied)


def _idle_shares(traces: Sequence[Trace], summary: StepSummary) -> dict[str, float]:
    """Idle time of the device period by cause, as a share of the step."""
    whole_ns = whole_of_shares(summary)
    idle = idle_of_step(traces, summary.device.get("idle_ns", 0.0))
    return {cause: idle_ns / whole_ns for cause, idle_ns in idle.items()} if whole_ns else {}


def whole_of_shares(summary: StepSummary) -> float:
    """What shares of the device's parts are of, ns: a mean, as they are.

    The device period; where it is not as long as the step, since recording has cut it, the step.
    """
    device_ns = summary.device_mean_ns or 0.0
    return max(summary.step_mean_ns or 0.0, device_ns) if summary.differs else device_ns


def _leading_collective(traces: Sequence[Trace]) -> tuple[str, float]:
    """The operation that most of the communication is, and its share; empty where none leads."""
    return _largest_share(join_rows(trace.once(communication_by_operation) for trace in traces), _LEADS)


def communication_by_operation(trace: Trace) -> pl.DataFrame:
    """How long each operation communicates in the chosen steps: name, length (ns)."""
    operation = pl.coalesce(pl.col("operation").cast(pl.String), pl.lit(""))
    rows = _in_chosen(trace, "communication").select(operation.alias("name"), length=_LENGTH)
    return rows.drop_nulls().group_by("name").agg(pl.col("length").sum()).sort("name").collect()


def _leading_category(traces: Sequence[Trace]) -> tuple[str, float, float]:
    """The category of operators with the most computing, its share, and its time in a step."""
    rows = join_rows(trace.once(_computing_by_category) for trace in traces)
    steps = sum(len(chosen_steps(trace).steps) for trace in traces)
    name, share = _largest_share(rows, 0.0)
    return name, share, share * float(rows["length"].sum()) / max(steps, 1)


def _computing_by_category(trace: Trace) -> pl.DataFrame:
    """How long the operators of each category compute in the chosen steps: name, length (ns)."""
    category = pl.col("category").cast(pl.String).fill_null("")
    tasks = _in_chosen(trace, "kernels").filter(pl.col("kind") == KIND_COMPUTE)
    return tasks.group_by(category.alias("name")).agg(length=pl.col("self_ns").sum()).sort("name").collect()


_LENGTH = pl.col("end_ns") - pl.col("start_ns")


def _in_chosen(trace: Trace, table: str) -> pl.LazyFrame:
    return trace.required(table).filter(pl.col("step").is_in(list(chosen_steps(trace).steps)))


def _largest_share(rows: pl.DataFrame, least: float) -> tuple[str, float]:
    sums = rows.drop_nulls().group_by("name").agg(pl.col("length").sum()).sort("length", "name", descending=[True, False])
    total_ns = float(sums["length"].sum()) if sums.height else 0.0
    if total_ns <= 0:
        return "", 0.0
    name, length = sums.row(0)
    return (name, length / total_ns) if length / total_ns >= least else ("", 0.0)


def _with_confidence(judged: Verdict, traces: Sequence[Trace]) -> Verdict:
    """The verdict with how sure it is, and why it is not surer."""
    summary = judged.summary
    ranks, size = recorded_ranks(traces)
    judged = replace(judged, ranks_recorded=len(ranks), world_size=size)
    if any(
        (health := trace.health) is not None and any(unsafe(health, word, least=WARNING).height for word in _DOUBTFUL)
        for trace in traces
    ):
        return replace(judged, confidence=GUESS)
    low, high = summary.quartiles_ns or (0.0, 0.0)
    spread = (high - low) / summary.step_time_ns if summary.step_time_ns else 0.0
    few = any(choice.few for choice in summary.chosen)
    gets_faster = any(trace.health is not None and STEPS_GET_FASTER in trace.health["check"].to_list() for trace in traces)
    since_some_step = (steps for trace in traces if (steps := waiting_steps(trace)) is not None and steps.since is not None)
    waiting = next(since_some_step, None) if judged.kind == INPUT else None
    if waiting is not None:
        judged = replace(judged, waits_since=waiting.since, wait_ns=waiting.wait_ns)
    reasons = {
        FEW: few,
        RANKS: judged.kind in (COMMUNICATION, RANK, SLOW_HOST, SLOW_STAGE, SLOW_LINK, PIPELINE)
        and len(ranks) < size
        and judged.told_apart,
        CLOSE: bool(judged.close),
        FASTER: gets_faster,
        SPREAD: not few and not gets_faster and spread > _WIDE and waiting is None,
        FILLED: waiting is not None,
    }
    doubts = tuple(doubt for doubt, holds in reasons.items() if holds)
    is_known = judged.told_apart and judged.cause not in (NOT_RECORDED, IDLE_UNKNOWN)
    confidence = SURE if is_known and not doubts else LIKELY
    return replace(judged, confidence=confidence, doubts=doubts, spread=spread)
