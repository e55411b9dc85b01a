"""What a verdict holds, and its sentence in any language: one way of putting it together, for terminal, pages and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steplens.analysis.steps.summary import StepSummary

COMPUTE, COMMUNICATION, COPY, INPUT = "compute", "communication", "copy", "input"
HOST, SYNCHRONIZING, IDLE, RANK, NOTHING, UNKNOWN = "host", "synchronizing", "idle", "rank", "nothing", "unknown"
#: a computer, and a stage of a pipeline, that the others wait for; a link; a pipeline whose stages wait
SLOW_HOST, SLOW_STAGE, SLOW_LINK, PIPELINE = "slow_host", "slow_stage", "slow_link", "pipeline"
#: what a verdict can be
KINDS = (
    COMPUTE, COMMUNICATION, COPY, INPUT, HOST, SYNCHRONIZING, IDLE, RANK, SLOW_HOST, SLOW_STAGE, SLOW_LINK, PIPELINE, NOTHING,
    UNKNOWN,
)  # fmt: skip
#: a device idles because the host is slow: what takes the host's time tells more than what takes the device's
OF_THE_HOST = (HOST, SYNCHRONIZING)
SURE, LIKELY, GUESS = "sure", "likely", "guess"

#: why a verdict is less certain
FEW, RANKS, CLOSE, SPREAD, FASTER, FILLED = "few", "ranks", "close", "spread", "faster", "filled"

#: one cause, phase or name that is most of the time that the host takes
_LEADS = 0.5
#: a function or operator with this share of that time is worth a look
_NAMED = 0.3
#: and one with this share, where none is worth more
_MENTIONED = 0.02
#: characters of a name
_LONGEST = 60
#: waiting in a pipeline that is more than the bubble by this share of a step is no bubble alone
_BEYOND = 0.1


@dataclass(frozen=True)
class CloseCause:
    """Something else that takes nearly as much of a step as what the verdict names.

    Attributes:
        kind: one of ``KINDS``.
        share: of the step, 0 to 1.
        cause: of IDLE, the largest of its causes (``analysis.device.idle.CAUSES``); empty elsewhere.
    """

    kind: str
    share: float
    cause: str = ""


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
        leading_share: its share of the communication or of the computing, 0 to 1; ``leading_ns``: of computing that time of a
            mean step, 0 where tasks overlap, since it may be longer than what the step computes then.
        cause: of idle time, the largest cause (``analysis.device.idle.CAUSES``) among those of the kind; empty elsewhere.
        cause_share: its share of the idle time that ``share`` counts.
        phase: where the host is late, the phase in which it is so the most (``analysis.steps.phases.PHASES``), and
            ``phase_share`` of that time; ``name`` and ``name_share``: the same of a function of Python or an operator;
            ``is_behind``: whether that time passed behind the operator, while none ran.
        rank: the rank that others wait for; None elsewhere.
        slow_host: name of the host whose ranks others wait for; ``slow_stage``: the stage, from 1, 0 elsewhere; ``slower``: by
            what share it computes longer. ``link``: names of the hosts, or numbers of the ranks (``is_link_of_ranks``), between
            which messages move slowly, ``slower`` times as long as elsewhere.
        stages, batches: of a pipeline, how many stages and micro-batches it has, and ``implied``, what share of a step filling
            and draining it takes of equal stages.
        is_moving: whether ``share`` of communication is what moves data, without waiting.
        confidence: SURE, LIKELY (with the reasons in ``doubts``, or since what the sentence names was not recorded) or GUESS
            (health calls the figures unsafe).
        doubts: FEW (fewer than three complete steps), RANKS (ranks are missing whose part in the communication is not known),
            CLOSE (other causes, ``close``, are nearly as large, the largest first), FASTER (later steps are faster than
            earlier ones), SPREAD (the quartiles of the step time are far apart, ``spread`` of the median) and FILLED (the first
            steps found batches in a filled queue: from step ``waits_since`` on every one waits, ``wait_ns`` on average).
        ranks_recorded: how many ranks were; ``world_size``: how many the job has, 0 where that is not known.
        told_apart: whether waiting and transfer of the communication are known.
        loads_itself: of an input-bound step, whether the loop has no loader workers and loads its data itself;
            ``operators_share``: share of that in which operators run, which on a CPU counts as computing.
        table: the table (``steplens table``) that shows more.
        summary: the figures it is made from.
    """

    kind: str
    share: float
    of_device: bool
    device: str
    table: str
    summary: StepSummary
    busy: float | None = None
    leading: str = ""
    leading_share: float = 0.0
    leading_ns: float = 0.0
    cause: str = ""
    cause_share: float = 0.0
    phase: str = ""
    phase_share: float = 0.0
    name: str = ""
    name_share: float = 0.0
    is_behind: bool = False
    rank: int | None = None
    slow_host: str = ""
    slow_stage: int = 0
    slower: float = 0.0
    link: tuple[str, ...] = ()
    is_link_of_ranks: bool = False
    stages: int = 0
    batches: int = 0
    implied: float = 0.0
    is_moving: bool = False
    confidence: str = SURE
    doubts: tuple[str, ...] = ()
    close: tuple[CloseCause, ...] = ()
    spread: float = 0.0
    waits_since: int | None = None
    wait_ns: float = 0.0
    ranks_recorded: int = 0
    world_size: int = 0
    told_apart: bool = True
    loads_itself: bool = False
    operators_share: float = 0.0

    def sentence(self, words: Mapping[str, str] | None = None) -> str:
        """The verdict in English, or in the language whose ``words`` have the keys of ``ENGLISH``."""
        words = words or ENGLISH
        text = _main_sentence(self, words)
        if self.kind == UNKNOWN:
            return text
        if self.confidence == GUESS:
            return text + words["guess"]
        if self.doubts:
            reasons = words["and"].join(_doubt_words(self, doubt, words) for doubt in self.doubts)
            return text + words["less_certain"].format(reasons=reasons)
        return text


#: the parts of sentences in English; other languages have the same keys
ENGLISH: Mapping[str, str] = {
    "compute": "Compute bound: the {device} computes {share} of the step{most}.",
    "compute_most": "; {leading_share} of the computing is {leading}{leading_time}",
    "leading_time": " ({time} a step)",
    "communication": "Communication bound: {share} of the step is {subject}{untold}.",
    "communication_all": "exposed communication",
    "communication_leading": "exposed {leading}",
    "communication_untold": "; waiting or transfer is not known: {recorded} of {size} ranks recorded",
    "copy": "Copy bound: {share} of the step the {device} copies and does nothing else.",
    "input": "Input bound: the {device} idles {share} of the step while the loop waits for the data loader.",
    "input_cpu": "Input bound: {share} of the step the loop waits for the data loader.",
    "input_itself": (
        "Input bound: the {device} idles {share} of the step while the loop loads its data itself, without loader workers."
    ),
    "input_cpu_itself": "Input bound: {share} of the step the loop loads its data itself, without loader workers{operators}.",
    "input_operators": "; operators run in {operators_share} of that, which the CPU's bar shows as computing",
    "synchronizing": "Host bound: the {device} idles {share} of the step because the host waits for it before it launches more.",
    "host": "Host bound: the {device} idles {share} of the step waiting for the host{cause}{phase}{name}.",
    "host_unrecorded": (
        "Host bound: the {device} idles {share} of the step because the next task is launched late; "
        "what the host does meanwhile was not recorded."
    ),
    "host_cpu": "Host bound: Python runs and no operator does for {share} of the step{name}.",
    "host_cpu_unrecorded": (
        "Host bound: no operator runs for {share} of the step; what the host does meanwhile was not recorded{name}."
    ),
    "mostly": ", mostly {doing}",
    "partly": ", {cause_share} of that {doing}",
    "doing_python": "while Python runs between its launches",
    "doing_calls": "while the host issues its calls",
    "doing_launch": "while launched work is on its way",
    "doing_allocation": "while the host allocates its memory",
    "doing_garbage collection": "while Python collects garbage",
    "in_phase": "; {phase_share} of that is in {phase}",
    "in_name": "; {name_share} of that in {name}",
    "in_many": "; many calls share that time, {name} has the most of it ({name_share})",
    "behind_name": "; {name_share} of that time passes after {name}, until the next operator",
    "behind_many": "; it is spread over many places, the most of it passes after {name} ({name_share})",
    "forward_ns": "forward",
    "backward_ns": "backward",
    "optimizer_ns": "the optimizer",
    "device_wait_ns": "waits for the device",
    "between_ns": "operators outside of forward, backward and optimizer",
    "data_wait_ns": "waits for data",
    "idle_between kernels": (
        "Bound by gaps between kernels: the {device} idles {share} of the step although its next task was launched in time, "
        "mostly between two kernels of one stream."
    ),
    "idle_dependency": (
        "Bound by waits on the device: the {device} idles {share} of the step although its next task was launched in time; "
        "mostly it waits for another stream or an event."
    ),
    "idle_unknown": "The {device} idles {share} of the step; why is not known, since launches were not recorded.",
    "communication_moving": "Communication bound: {share} of the step data is moved and nothing is computed.",
    "slow_host": "Waiting for host {host}: its ranks compute {percent} longer than the others, {share} of a step.",
    "slow_stage": "Waiting for stage {stage} of the pipeline: it computes {percent} longer than the others, {share} of a step.",
    "slow_link_host": "Slow link: what leaves host {link} takes {times} times as long as elsewhere, up to {share} of a step.",
    "slow_link_hosts": (
        "Slow link: messages between hosts {link} take {times} times as long as elsewhere, up to {share} of a step."
    ),
    "slow_link_ranks": (
        "Slow link: messages between ranks {link} take {times} times as long as elsewhere, up to {share} of a step."
    ),
    "pipeline_beyond": (
        "Bound by waiting in the pipeline: {share} of the step the {device} waits for other ranks, of which {stages} stages with "
        "{batches} micro-batches imply {implied}."
    ),
    "pipeline": (
        "Pipeline bubble: {share} of the step the {device} waits for other ranks; {stages} stages with {batches} micro-batches "
        "imply {implied}."
    ),
    "rank": "Waiting for rank {rank}: it holds the others up by {share} of a step.",
    "nothing": "Nothing stands out: no cause takes 15 % of the step.",
    "no_steps": "No verdict: the run has no steps.",
    "unknown": "No verdict: neither operators nor device work of steps were recorded.",
    "guess": " A guess: the data is doubtful, see its health.",
    "less_certain": " Less certain: {reasons}.",
    "and": "; ",
    "few_one": "only one complete step was recorded",
    "few_several": "only {steps} complete steps were recorded",
    "ranks": "{missing} of {size} ranks were not recorded",
    "close": "{others} takes nearly as much",
    "close_several": "{others} take nearly as much each",
    "close_one": "{other} ({share})",
    "close_and": " and ",
    "filled": "a filled queue fed the first steps, from step {since} on every step waits ({wait})",
    "spread": "steps differ in length, their quartiles by {spread} of the median",
    "faster": "steps still got faster while they were recorded, see the data health",
    "other_communication": "exposed communication",
    "other_copy": "copying",
    "other_input": "waiting for the data loader",
    "other_synchronizing": "waiting for synchronisation",
    "other_host": "waiting for the host",
    "other_pipeline": "waiting for other stages of the pipeline",
    "other_idle_between kernels": "idle time between kernels that were launched in time",
    "other_idle_dependency": "dependency, launched tasks waiting on the device",
    "other_idle_unknown": "idle time of unknown cause",
}

#: what an operation is called on screen
_COLLECTIVES = {
    "allreduce": "all-reduce", "allgather": "all-gather", "reducescatter": "reduce-scatter", "alltoall": "all-to-all",
    "broadcast": "broadcast", "send": "send", "receive": "receive", "recv": "receive", "reduce": "reduce", "barrier": "barrier",
    "gather": "gather", "scatter": "scatter",
}  # fmt: skip


def collective_name(operation: str) -> str:
    """An operation as people write it: "all-reduce" for "allReduce" or "all_reduce"."""
    plain = operation.lower().replace("_", "").replace("-", "")
    return next((name for key, name in _COLLECTIVES.items() if plain.startswith(key)), operation)


def whole_percent(share: float) -> str:
    """A share, 0 to 1, in whole percent."""
    return f"{100 * share:.0f} %"


def _rounded_time(ns: float) -> str:
    return f"{ns / 1e9:.3g} s" if ns >= 0.9995e9 else f"{ns / 1e6:.3g} ms"


def _in_a_sentence(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."


def _main_sentence(verdict: Verdict, words: Mapping[str, str]) -> str:
    template = words[_main_key(verdict)]
    leading = collective_name(verdict.leading) if verdict.kind == COMMUNICATION else verdict.leading
    values = {
        "device": verdict.device,
        "share": whole_percent(verdict.share),
        "rank": "" if verdict.rank is None else str(verdict.rank),
        "host": verdict.slow_host,
        "stage": str(verdict.slow_stage),
        "percent": whole_percent(verdict.slower),
        "link": ", ".join(verdict.link),
        "times": f"{verdict.slower:.2g}",
        "stages": str(verdict.stages),
        "batches": str(verdict.batches),
        "implied": whole_percent(verdict.implied),
        "leading": words.get(f"category_{leading}", leading),
        "leading_share": whole_percent(verdict.leading_share),
        "recorded": str(verdict.ranks_recorded),
        "size": str(verdict.world_size),
        "cause_share": whole_percent(verdict.cause_share),
        "doing": words.get(f"doing_{verdict.cause}", ""),
        "operators_share": whole_percent(verdict.operators_share),
        "phase_share": whole_percent(verdict.phase_share),
        "name_share": whole_percent(verdict.name_share),
    }
    values["leading_time"] = words["leading_time"].format(time=_rounded_time(verdict.leading_ns)) if verdict.leading_ns else ""
    parts = dict.fromkeys(("most", "subject", "untold", "operators", "cause", "phase", "name"), "")
    if verdict.leading:
        parts["most"] = words["compute_most"].format(**values)
    parts["subject"] = words["communication_leading" if verdict.leading else "communication_all"].format(**values)
    if not verdict.told_apart:
        parts["untold"] = words["communication_untold"].format(**values)
    if verdict.operators_share:
        parts["operators"] = words["input_operators"].format(**values)
    if values["doing"]:
        parts["cause"] = words["mostly" if verdict.cause_share >= _LEADS else "partly"].format(**values)
    if verdict.phase_share >= _LEADS and verdict.phase in words:
        parts["phase"] = words["in_phase"].format(**values, phase=words[verdict.phase])
    place = "behind" if verdict.is_behind else "in"
    if verdict.name_share >= _NAMED:
        parts["name"] = words[f"{place}_name"].format(**values, name=_in_a_sentence(verdict.name))
    elif verdict.name and verdict.name_share >= _MENTIONED:
        parts["name"] = words[f"{place}_many"].format(**values, name=_in_a_sentence(verdict.name))
    return template.format(**values | parts)


def _main_key(verdict: Verdict) -> str:
    if verdict.kind == UNKNOWN:
        return "unknown" if verdict.summary.steps else "no_steps"
    if verdict.kind == COMMUNICATION and verdict.is_moving:
        return "communication_moving"
    if verdict.kind == SLOW_LINK:
        return (
            "slow_link_ranks" if verdict.is_link_of_ranks else "slow_link_host" if len(verdict.link) == 1 else "slow_link_hosts"
        )
    if verdict.kind == PIPELINE and verdict.share > verdict.implied + _BEYOND:
        return "pipeline_beyond"
    if verdict.kind == IDLE:
        return f"idle_{verdict.cause}"
    if verdict.kind == INPUT:
        return ("input" if verdict.of_device else "input_cpu") + ("_itself" if verdict.loads_itself else "")
    if verdict.kind == HOST:
        unrecorded = verdict.cause == "not recorded"
        return ("host" if verdict.of_device else "host_cpu") + ("_unrecorded" if unrecorded else "")
    return verdict.kind


def _doubt_words(verdict: Verdict, doubt: str, words: Mapping[str, str]) -> str:
    steps = max((len(choice.steps) for choice in verdict.summary.chosen), default=0)
    if doubt == FEW:
        return words["few_one" if steps == 1 else "few_several"].format(steps=steps)
    if doubt == CLOSE:
        return _close_causes(verdict.close, words)
    return words[doubt].format(
        missing=verdict.world_size - verdict.ranks_recorded,
        size=verdict.world_size,
        spread=whole_percent(verdict.spread),
        since=verdict.waits_since,
        wait=_rounded_time(verdict.wait_ns),
    )


def _close_causes(causes: Sequence[CloseCause], words: Mapping[str, str]) -> str:
    parts = []
    for close in causes:
        key = f"other_{close.kind}_{close.cause}" if close.cause else f"other_{close.kind}"
        parts.append(words["close_one"].format(other=words.get(key, close.kind), share=whole_percent(close.share)))
    return words["close_several" if len(parts) > 1 else "close"].format(others=words["close_and"].join(parts))
