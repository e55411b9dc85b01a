"""The verdict: in one sentence, what holds a step up, how sure that is, and where to look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from steplens.analysis.cluster.arrivals import name_slow_rank
from steplens.analysis.device.idle import DATA, DEPENDENCY, HOST_CAUSES, PYTHON, SYNCHRONIZATION, idle_of_step
from steplens.analysis.steps.choice import chosen_steps
from steplens.analysis.steps.summary import StepSummary, summarize_steps
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

COMPUTE, COMMUNICATION, COPY, INPUT = "compute", "communication", "copy", "input"
HOST, SYNCHRONIZING, RANK, NOTHING, UNKNOWN = "host", "synchronizing", "rank", "nothing", "unknown"
#: what a verdict can be
KINDS = (COMPUTE, COMMUNICATION, COPY, INPUT, HOST, SYNCHRONIZING, RANK, NOTHING, UNKNOWN)
SURE, LIKELY, GUESS = "sure", "likely", "guess"

#: what takes this share of a step holds it up
_MATTERS = 0.15
#: computing of this share is what a step is made of
_MOSTLY = 0.6
#: a rank that the others wait for this share of a step
_HOLDS_UP = 0.1
#: one operation, or one category, that is most of what it belongs to
_LEADS = 0.5
#: which table shows more, by kind
_TABLES = {
    COMPUTE: "kernels", COMMUNICATION: "communication", COPY: "kernels", INPUT: "pipeline", HOST: "idle",
    SYNCHRONIZING: "idle", RANK: "waits", NOTHING: "steps", UNKNOWN: "health",
}  # fmt: skip
_DEVICE_WORDS = {"CUDA": "GPU", "ROCM": "GPU", "NPU": "NPU", CORE_CPU: "CPU"}
_DOUBTFUL = (EVERYTHING, STEP_TIMES, STEP_PHASES, STEP_DEVICE_TIMES, OVERLAP, HOST_AGAINST_DEVICE)


@dataclass(frozen=True)
class Verdict:
    """What holds a step up.

    Attributes:
        kind: one of ``KINDS``.
        share: of the step, 0 to 1: of the device period where ``of_device``, else of the host duration.
        of_device: whether the figures of an accelerator decide.
        busy: share of the step in which the device computes; None where that was not recorded.
        device: "GPU", "NPU" or "CPU".
        leading: the collective, or the category of operators, that is most of it; empty where none is.
        leading_share: its share of the communication or of the computing, 0 to 1.
        cause: of idle time, what the host did most of it (``analysis.device.idle.CAUSES``); empty elsewhere.
        rank: the rank that others wait for; None elsewhere.
        confidence: SURE, LIKELY (few steps, or another cause is nearly as large) or GUESS (health calls the figures unsafe).
        table: the table (``steplens table``) that shows more.
        summary: the figures it is made from.
    """

    kind: str
    share: float
    of_device: bool
    busy: float | None
    device: str
    leading: str
    leading_share: float
    cause: str
    rank: int | None
    confidence: str
    table: str
    summary: StepSummary

    def sentence(self) -> str:
        """The verdict in English."""
        sentence = _verdict_sentence(self)
        if self.kind == UNKNOWN:
            return sentence
        if self.confidence == LIKELY:
            reason = "few steps" if any(choice.few for choice in self.summary.chosen) else "other causes are nearly as large"
            return f"{sentence} Likely: {reason}."
        if self.confidence == GUESS:
            return f"{sentence} A guess: the data is doubtful, see its health."
        return sentence


def verdict(traces: Sequence[Trace], summary: StepSummary | None = None) -> Verdict:
    """What holds a step of a run up, from the figures of its chosen steps.

    On an accelerator the parts of the device period decide, and the causes of its idle time; on a CPU the phases of the host
    (Python as far as the CPU is idle meanwhile) and computing. What takes at least 15 % of the step holds it up, the largest
    first: a rank that the others wait for (10 %), exposed communication, exposed copies, idle time while the loader is waited for
    (input), while a synchronisation is waited for, and while the host issues its calls (host). Where none does and computing
    takes 60 %, it is compute bound.

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
        return Verdict(UNKNOWN, 0.0, of_device, None, device, "", 0.0, "", None, GUESS, _TABLES[UNKNOWN], summary)
    rank, hold_up = _waits_for(traces, summary)
    if of_device:
        idle = _idle_shares(traces, summary)
        host_cause = max(HOST_CAUSES, key=lambda cause: idle.get(cause, 0.0))
        shares = {
            COMMUNICATION: parts.get("exposed_communication_ns", 0.0),
            COPY: parts.get("exposed_copy_ns", 0.0),
            INPUT: idle.get(DATA, 0.0),
            SYNCHRONIZING: idle.get(SYNCHRONIZATION, 0.0),
            HOST: sum(idle.get(cause, 0.0) for cause in (*HOST_CAUSES, DEPENDENCY)),
        }
    else:
        host = {name: value / summary.host_ns for name, value in summary.host.items()} if summary.host_ns else {}
        host_cause = PYTHON
        exposed = parts.get("exposed_communication_ns", 0.0)
        shares = {
            INPUT: host.get("data_wait_ns", 0.0),
            COMMUNICATION: max(exposed, summary.gradient_sync_ns / summary.host_ns if summary.host_ns else 0.0),
            SYNCHRONIZING: host.get("device_wait_ns", 0.0),
            # while a collective is in flight, Python waits for it
            HOST: min(host.get("python_ns", 0.0), parts.get("idle_ns", 1.0)),
        }
    largest = sorted(shares, key=lambda name: shares[name], reverse=True)
    confidence = _judge_confidence(traces, summary, [shares[name] for name in largest])

    def make_verdict(
        kind: str, share: float, leading: str = "", leading_share: float = 0.0, cause: str = "", rank: int | None = None
    ) -> Verdict:
        table = _TABLES[kind]
        return Verdict(kind, share, of_device, busy, device, leading, leading_share, cause, rank, confidence, table, summary)

    if rank is not None and hold_up >= max(_HOLDS_UP, 0.5 * max(value for name, value in shares.items() if name != HOST)):
        return make_verdict(RANK, hold_up, rank=rank)
    first = largest[0]
    if shares[first] >= _MATTERS:
        leading = _leading_collective(traces) if first == COMMUNICATION else ("", 0.0)
        return make_verdict(first, shares[first], *leading, cause=host_cause if first == HOST else "")
    if busy is not None and busy >= _MOSTLY:
        return make_verdict(COMPUTE, busy, *_leading_category(traces))
    return make_verdict(NOTHING, shares[first])


def _waits_for(traces: Sequence[Trace], summary: StepSummary) -> tuple[int | None, float]:
    """The rank that the others wait for again and again, and for which share of a step."""
    if len({trace.rank for trace in traces if trace.rank >= 0}) < 2 or not summary.step_time_ns:
        return None, 0.0
    chosen_steps = {step for choice in summary.chosen for step in choice.steps}
    slow = name_slow_rank(traces, chosen_steps, summary.step_time_ns)
    return (slow.rank, slow.hold_up_ns / summary.step_time_ns) if slow is not None else (None, 0.0)


def _idle_shares(traces: Sequence[Trace], summary: StepSummary) -> dict[str, float]:
    """Idle time of the device period by cause, as a share of the step."""
    whole_ns = whole_of_shares(summary)
    idle = idle_of_step(traces, summary.device.get("idle_ns", 0.0))
    return {cause: idle_ns / whole_ns for cause, idle_ns in idle.items()} if whole_ns else {}


def whole_of_shares(summary: StepSummary) -> float:
    """What shares of the device's parts are of, ns.

    The device period; where it is not as long as the step, since recording has cut it, the step.
    """
    device_ns = summary.device_ns or 0.0
    return max(summary.step_time_ns or 0.0, device_ns) if summary.differs else device_ns


def _leading_collective(traces: Sequence[Trace]) -> tuple[str, float]:
    """The operation that most of the communication is, and its share; empty where none leads."""
    operation = pl.coalesce(pl.col("operation").cast(pl.String), pl.lit(""))
    frames = [_in_chosen(trace, "communication").select(operation.alias("name"), length=_LENGTH).collect() for trace in traces]
    return _largest_share(pl.concat(frames), _LEADS)


def _leading_category(traces: Sequence[Trace]) -> tuple[str, float]:
    """The category of operators with the most computing, and its share."""
    category = pl.col("category").cast(pl.String).fill_null("")
    frames = []
    for trace in traces:
        tasks = _in_chosen(trace, "kernels").filter(pl.col("kind") == KIND_COMPUTE)
        frames.append(tasks.select(category.alias("name"), length="self_ns").collect())
    return _largest_share(pl.concat(frames), 0.0)


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


def _judge_confidence(traces: Sequence[Trace], summary: StepSummary, shares: Sequence[float]) -> str:
    doubts = [
        trace for trace in traces
        if (health := trace.health) is not None and any(unsafe(health, word, least=WARNING).height for word in _DOUBTFUL)
    ]  # fmt: skip
    if doubts:
        return GUESS
    close = len(shares) > 1 and shares[0] >= _MATTERS and shares[1] > 0.8 * shares[0]
    return LIKELY if close or any(choice.few for choice in summary.chosen) else SURE


#: what an operation is called on screen
_COLLECTIVES = {
    "allreduce": "all-reduce", "allgather": "all-gather", "reducescatter": "reduce-scatter", "alltoall": "all-to-all",
    "broadcast": "broadcast", "send": "send", "receive": "receive", "recv": "receive", "reduce": "reduce", "barrier": "barrier",
    "gather": "gather", "scatter": "scatter",
}  # fmt: skip
_DOING = {
    "python": "while Python runs between its launches",
    "calls": "while the host issues its calls",
    "launch": "while launched work is on its way",
    "allocation": "while the host allocates its memory",
    "garbage collection": "while Python collects garbage",
}


def collective_name(operation: str) -> str:
    """An operation as people write it: "all-reduce" for "allReduce" or "all_reduce"."""
    plain = operation.lower().replace("_", "").replace("-", "")
    return next((name for key, name in _COLLECTIVES.items() if plain.startswith(key)), operation)


def whole_percent(share: float) -> str:
    """A share, 0 to 1, in whole percent."""
    return f"{100 * share:.0f} %"


def _verdict_sentence(found: Verdict) -> str:
    share, device = whole_percent(found.share), found.device
    match found.kind:
        case "compute":
            most = f", {whole_percent(found.leading_share)} of it {found.leading}" if found.leading else ""
            return f"Compute bound: the {device} computes {share} of the step{most}."
        case "communication":
            subject = f"exposed {collective_name(found.leading)}" if found.leading else "exposed communication"
            return f"Communication bound: {share} of the step is {subject}."
        case "copy":
            return f"Copy bound: {share} of the step the {device} copies and does nothing else."
        case "input":
            idles = f"the {device} idles {share} of the step while" if found.of_device else f"{share} of the step"
            return f"Input bound: {idles} the loop waits for the data loader."
        case "synchronizing":
            return f"Host bound: the {device} idles {share} of the step because the host waits for it before it launches more."
        case "host":
            doing = _DOING.get(found.cause, "waiting for the host")
            if not found.of_device:
                return f"Host bound: Python runs and no operator does for {share} of the step."
            return f"Host bound: the {device} idles {share} of the step, mostly {doing}."
        case "rank":
            return f"Waiting for rank {found.rank}: it holds the others up by {share} of a step."
        case "nothing":
            return "Nothing stands out: no cause takes 15 % of the step."
        case _ if not found.summary.steps:
            return "No verdict: the run has no steps."
        case _:
            return "No verdict: neither operators nor device work of steps were recorded."
