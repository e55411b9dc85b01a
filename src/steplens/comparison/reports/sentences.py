"""What is said of a comparison in words, the same in the terminal and in every report."""

from __future__ import annotations

import polars as pl

from steplens.analysis.memory.memory_peak import BEFORE, MISSING
from steplens.common.display import duration, mean_count, size
from steplens.common.stand_ins import told_path
from steplens.comparison.causes.cause import DEVICE, Causes
from steplens.comparison.causes.sentences import explain_cause
from steplens.comparison.comparison import ALIKE, CANNOT_TELL, LEAST_CHANGE, Comparison, PartChange, StepChange
from steplens.comparison.gate import Judgement
from steplens.comparison.item_times import SELF
from steplens.comparison.operator_steps import compare_operator
from steplens.comparison.side import Side

#: what a part of the step is called
PART_LABELS = {
    "data_wait_ns": "data loading",
    "forward_ns": "forward",
    "backward_ns": "backward",
    "optimizer_ns": "optimizer",
    "device_wait_ns": "waiting for the device",
    "between_ns": "between the phases",
    "python_ns": "Python outside the phases",
    "computing_ns": "computing",
    "exposed_communication_ns": "exposed communication",
    "exposed_copy_ns": "exposed copies",
    "idle_ns": "idle",
}
#: follows a change whose interval holds 0
CHANCE = "chance may explain it"
#: a part that changed by a smaller share of the step is not shown
_LEAST_PART = 0.001


def verdict_sentence(found: Comparison) -> str:
    """What became of the step time, in a sentence, or why that cannot be told."""
    return step_sentence(found.step) if found.step is not None else too_few_sentence(found)


def step_sentence(step: StepChange, counted: str = "recordings a side like these") -> str:
    """What became of the step time, in a sentence.

    Args:
        step: what was found.
        counted: what more of would tell.
    """
    interval = f"the interval of 95 % is {interval_text(step.low, step.high)}"
    if step.step_verdict == ALIKE:
        return f"A step is as long as before, within {100 * LEAST_CHANGE:.0f} %: {signed_percent(step.ratio)}; {interval}."
    if step.step_verdict == CANNOT_TELL:
        if step.runs_needed is None:
            more = "Not even a thousand recordings like these would tell."
        else:
            more = f"To tell a change of {100 * step.asked_change:.1f} % takes about {step.runs_needed} {counted}."
        return f"Cannot tell whether a step became longer: {signed_percent(step.ratio)}; {interval}. {more}"
    return f"A step is {abs(100 * step.ratio):.1f} % {step.step_verdict}; {interval}."


def too_few_sentence(found: Comparison) -> str:
    """What is said in the place of ``step_sentence`` where a side has too few steps."""
    counts = [f"{side.step_count} step{'s' * (side.step_count != 1)}" for side in (found.before, found.after)]
    return f"Cannot tell whether a step became longer: there are {counts[0]} before and {counts[1]} after, and 3 are the least."


def describe_side(side: Side) -> str:
    """How long a step of a side is, and of how many steps, recordings and ranks that is known."""
    if side.step_ns is None:
        return "no steps"
    ranks = max((recording.ranks for recording in side.recordings), default=0)
    count = len(side.recordings)
    kind = "typical: geometric mean of the recordings' medians" if count > 1 else "median"
    words = [f"{duration(side.step_ns)} a step ({kind})", f"{side.step_count} step{'s' * (side.step_count > 1)}"]
    words += [f"{count} recordings"] if count > 1 else []
    words += [f"{ranks} ranks"] if ranks > 1 else []
    return ", ".join(words)


def judgement_sentence(judgement: Judgement) -> str:
    """Whether a limit is kept, and from which change that follows."""
    return f"limit {judgement.limit}: {judgement.verdict}: {judgement_reason(judgement)}"


def judgement_reason(judgement: Judgement) -> str:
    """By how much the figure grew with its interval, or why that is not known."""
    if judgement.ratio is None or judgement.low is None or judgement.high is None:
        return judgement.reason
    return f"{signed_percent(judgement.ratio)}, {interval_text(judgement.low, judgement.high)}"


def shown_parts(found: Comparison) -> list[PartChange]:
    """The parts of the step that changed by enough to be shown, the largest change first."""
    least_ns = _LEAST_PART * (found.before.step_ns or 0.0)
    return [part for part in found.parts if abs(part.difference_ns) >= least_ns]


def causes_title(causes: Causes) -> str:
    """Of which side of the step the causes are, and how much of its change they make up."""
    # of too few steps nobody knows what chance explains
    is_told = causes.explained is not None and any(cause.error_ns is not None for cause in causes.causes)
    explained = f"; those beyond chance make up {100 * (causes.explained or 0.0):.0f} % of it" if is_told else ""
    return f"what explains the change of a step, time of the {'device' if causes.side == DEVICE else 'host'}{explained}"


def other_causes(causes: Causes, top: int) -> str:
    """How many causes are not among those that are shown; empty where all are."""
    count, certain = causes.count_others(top)
    if not count:
        return ""
    if certain is None:
        return f"{count} more"
    return f"{count} more, {certain} of them beyond chance" if certain else f"{count} more, which chance may explain"


def unexplained_sentences(found: Comparison) -> list[str]:
    """Of each side that holds nothing that explains a change, that it does not, and what to do; nothing where all do."""
    return [
        f"{told_path(side.path)} holds nothing that explains a change of time or memory: it was saved by an earlier steplens, or "
        "recordings were added to one that was; save it again with: steplens baseline save NAME RUN --replace"
        for side in found.unexplained_sides
    ]


def explained_lines(found: Comparison, top: int) -> list[str]:
    """What explains the change of a step and of the memory peak, a line each; nothing where no cause is to be shown.

    Args:
        found: what was compared.
        top: how many causes to name.
    """
    causes = [] if found.causes is None else found.causes.shown_first(top)
    lines = [explain_cause(cause) + ("" if cause.is_certain or cause.error_ns is None else f" ({CHANCE})") for cause in causes]
    title = [causes_title(found.causes)] if found.causes is not None and causes else []
    return [*title, *(f"  {line}" for line in lines), *unexplained_sentences(found), *memory_sentences(found)]


def changed_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of a comparison by name or path that changed."""
    return rows.filter(pl.col("difference_ns") != 0)


def may_be_chance(found: Comparison, operator: str) -> bool:
    """Whether the interval of the change of an operator's self time holds 0."""
    difference = compare_operator(found.before, found.after, operator, SELF).difference
    return difference is not None and not difference.is_certain


def device_time_title(found: Comparison) -> str:
    """The device time of both sides, and how much of it is matched."""
    before_ns, after_ns = (float(found.device_time.rows[name].sum()) for name in ("before_ns", "after_ns"))
    matched = f"{100 * (found.device_time.matched or 0.0):.0f} % of it is of operators that both sides have"
    return f"device time per step, {duration(before_ns)} -> {duration(after_ns)}, by the operator that launched it; {matched}"


def path_names(rows: pl.DataFrame) -> list[str]:
    """The last operator of each path with its module, and with what calls it where several rows would have one name."""
    names = [f"{row['module']}: {row['name']}" if row["module"] else row["name"] for row in rows.iter_rows(named=True)]
    paths = [" > ".join(path.split(" > ")[-2:]) for path in rows["path"].to_list()]
    return [path if names.count(name) > 1 else name for name, path in zip(names, paths, strict=True)]


def interval_text(low: float, high: float) -> str:
    """An interval of a change, from ratios."""
    return f"{signed_percent(low)} to {signed_percent(high)}"


def signed_percent(ratio: float) -> str:
    """A ratio less 1 in per cent, with its sign."""
    return f"{100 * ratio:+.1f} %"


def signed_duration(ns: float) -> str:
    """A change of a length of time, with its sign."""
    return f"{'+' if ns > 0 else '-'}{duration(abs(ns))}"


def time_or_none(ns: float | None) -> str:
    """The time of a side that may have none of it."""
    return "none" if ns is None else duration(ns)


def call_counts(before: float | None, after: float | None) -> str:
    """How often something is called per step, on both sides where they differ."""
    counts = [mean_count(count or 0) for count in (before, after)]
    return f"{counts[0]} call{'s' * (counts[0] != '1')}" if counts[0] == counts[1] else f"{counts[0]} -> {counts[1]} calls"


#: what holds memory and is no operator, in a sentence
_HELD_NAMES = {BEFORE: "what was allocated before recording", MISSING: "what was not recorded"}


def memory_sentences(found: Comparison) -> list[str]:
    """What became of the memory peak, and below it what holds more or less there; nothing where it hardly changed."""
    sentences = []
    for held in found.memory_changes:
        sizes = f"{size(held.before_bytes)} -> {size(held.after_bytes)}"
        change = f"{'+' if held.difference_bytes > 0 else '-'}{size(abs(held.difference_bytes))}"
        if held.name:
            sentences.append(f"  {_HELD_NAMES.get(held.name, held.name)} holds {sizes}, {change}")
        else:
            percent = f", {signed_percent(held.difference_bytes / held.before_bytes)}" if held.before_bytes else ""
            sentences.append(f"memory at its peak ({held.device}): {sizes}, {change}{percent}")
    return sentences
