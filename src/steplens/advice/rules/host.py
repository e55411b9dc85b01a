"""What the host does while an accelerator, or the training, waits: late launches, Python, collections, compiling, checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import EVERY_ACCELERATOR, rule
from steplens.advice.rules.tools.idle_places import idle_besides, place_evidence
from steplens.advice.rules.tools.tasks import most_of_others, named_places, steps_of, with_top_values
from steplens.analysis.device import idle
from steplens.analysis.device.idle_activity import names_before
from steplens.analysis.device.idle_places import idle_places, late_gaps
from steplens.analysis.steps.device_work import computing_tasks
from steplens.analysis.tools.names import containing, of_calls
from steplens.analysis.tools.overlap import Int64Array, Intervals, length_inside, merge_intervals, merged, subtract
from steplens.trace import health
from steplens.trace.building.framework import PYTORCH
from steplens.trace.schema import CHECKPOINT_BYTES, CORE_CPU, DATALOADER_PREFIX, SCOPE_BACKWARD, SCOPE_FUNCTION, SCOPE_USER

#: what the host does that a device need not wait for, and its words
_HOST = {
    idle.CALLS: "idle_calls", idle.PYTHON: "idle_python", idle.NOT_RECORDED: "idle_not_recorded", idle.LAUNCH: "idle_launch",
}  # fmt: skip


@rule(rests_on=(health.HOST_AGAINST_DEVICE, health.KERNEL_TIMES, health.STEP_DEVICE_TIMES), devices=EVERY_ACCELERATOR)
def device_waits_for_host(facts: Facts, *, least_share: float = 0.05) -> Iterator[Finding]:
    """The device is idle because the host launches its work too slowly: small tasks, long Python.

    The gaps that end with a task which the host launched late, as far as it was busy with calls, Python and launching.

    Captured as a graph, or compiled, the same tasks follow each other at once. Some of the gaps stay, so the low end of
    the saving is half of them.
    """
    # the causes add up to that
    if not facts.step_ns or facts.median("idle_ns") < least_share * facts.step_ns:
        return
    causes = facts.idle
    if causes.is_empty():
        return
    mine = causes.filter(pl.col("cause").is_in(list(_HOST)))
    lengths = {cause: facts.typical_ns(mine.filter(pl.col("cause") == cause), "idle_ns", on_device=True) for cause in _HOST}
    parts = {cause: length_ns for cause, length_ns in lengths.items() if length_ns}
    total = facts.typical_ns(mine, "idle_ns", on_device=True)
    if total < least_share * facts.step_ns:
        return
    tasks_of_steps = computing_tasks(facts.trace).filter(pl.col("step").is_in(list(facts.numbers)))
    length = pl.col("end_ns") - pl.col("start_ns")
    tasks = tasks_of_steps.select(count=pl.len() / facts.steps.height, median_ns=length.median()).collect()
    evidence = [Evidence("idle_for_host", total, "ns", facts.numbers)]
    evidence += [Evidence(_HOST[cause], length_ns, "ns") for cause, length_ns in sorted(parts.items(), key=lambda part: -part[1])]
    if (unrecorded_ns := parts.get(idle.NOT_RECORDED, 0.0)) > total / 2:
        # what the host does is not known: where it is late is
        places = idle_places([facts.trace], late_gaps([facts.trace]), 1.0)
        scale = unrecorded_ns / float(places["idle_ns"].sum() or 1.0)
        evidence += place_evidence([facts.trace], places.with_columns(pl.col("idle_ns") * scale))
    besides = causes.filter(~pl.col("cause").is_in(list(_HOST)))
    evidence += idle_besides(facts.typical_of_each(besides, "cause", "idle_ns", on_device=True), facts.step_ns)
    evidence.append(Evidence("device_tasks", float(tasks["count"][0]), "count"))
    evidence.append(Evidence("task_length", float(tasks["median_ns"][0] or 0), "ns", per_step=False))
    yield facts.make_finding(
        device_waits_for_host.name, evidence, Saving(total / 2, 0.8 * total, total), confidence=0.8, part="idle_ns"
    )


#: what stays in the loop of a checkpoint that is written in the background: copying the tensors, at so many bytes per second
#: (one thread, with what the copy pushes out of the caches; measured on CPU), or this share where their size is not known
_COPY_RATE = 3e9
_SAVING_REMAINS = 0.2


@rule(rests_on=(health.USER_MARKS,))
def checkpoint_stalls(facts: Facts, *, least_share: float = 0.02) -> Iterator[Finding]:
    """Training stops while a checkpoint is written.

    The time of saving, spread over the recorded steps; written in the background, only the copy of the tensors stays.

    Saving counts on the threads of the steps; what other threads write already is in the background.
    """
    marks = facts.saves
    if marks.is_empty() or not facts.step_ns:
        return
    within = pl.lit(False)
    steps = []
    for step, start, length in facts.steps.select("step", "start_ns", "duration_ns").iter_rows():
        is_inside = pl.col("start_ns").is_between(start, start + length, closed="left")
        if marks.filter(is_inside).height:
            steps.append(step)
        within = within | is_inside
    saves = marks.filter(within)
    total = float((saves["end_ns"] - saves["start_ns"]).sum()) / facts.steps.height
    if total < least_share * facts.step_ns:
        return
    each = total * facts.steps.height / saves.height
    evidence = [
        Evidence("saving_checkpoints", total, "ns", tuple(steps), ("torch.save",), of_mean=True),
        Evidence("one_checkpoint", each, "ns", per_step=False),
    ]
    size, remaining = facts.trace.meta_value(CHECKPOINT_BYTES), _SAVING_REMAINS
    if isinstance(size, int):
        evidence.append(Evidence("checkpoint_size", float(size), "bytes", per_step=False))
        remaining = min(size / _COPY_RATE * 1e9 / each, 1.0)
    # copying to the host may be ten times as fast, and a third as fast
    saving = Saving(max(1 - 3 * remaining, 0.0) * total, (1 - remaining) * total, (1 - remaining / 10) * total)
    yield facts.make_finding(checkpoint_stalls.name, evidence, saving, confidence=0.9)


@rule(rests_on=(health.GARBAGE_COLLECTION,))
def garbage_collection(facts: Facts, *, least_share: float = 0.01) -> Iterator[Finding]:
    """Python's garbage collector stops the training loop.

    The whole length of a collection is saved: objects that are dropped go when nobody refers to them, without it.

    Only reference cycles need the collector; a little of it stays, for collecting them now and then.
    """
    collections = facts.trace.required("gc").select("start_ns", "end_ns", "generation").collect()
    if collections.is_empty() or not facts.step_ns:
        return
    pauses = []
    for step, start, length in facts.steps.select("step", "start_ns", "duration_ns").iter_rows():
        in_step = collections.filter(pl.col("start_ns").is_between(start, start + length, closed="left"))
        pauses.append((step, in_step.height, int((in_step["end_ns"] - in_step["start_ns"]).sum())))
    total = sum(pause for _, _, pause in pauses) / len(pauses)
    if total < least_share * facts.step_ns:
        return
    count = sum(number for _, number, _ in pauses) / len(pauses)
    evidence = Evidence("collecting", total, "ns", tuple(step for step, number, _ in pauses if number), of_mean=True)
    saving = Saving(0.7 * total, 0.95 * total, total)
    yield facts.make_finding(
        garbage_collection.name, [evidence, Evidence("collections", count, "count")], saving, confidence=0.95
    )


#: Python between two operators takes some 10 us as a rule; this long it does something of its own
_LEAST_NS = 1_000_000
#: what stays of the work when it is done elsewhere: handing it over
_PYTHON_REMAINS = 0.05
#: gaps whose frames are looked up, the longest first, and how many of these are named
_NAMED, _FRAMES = 50, 3
#: characters of a name in a title
_LONGEST = 60
#: the loader's and the optimizer's ranges; Optimizer.closure is the program's own
_RANGES = rf"^{re.escape(DATALOADER_PREFIX)}|^Optimizer\.(step|zero_grad)#"


# of an accelerator that was not recorded nobody knows that it was idle meanwhile
@rule(
    rests_on=(health.OPERATOR_CALLS, health.OPERATOR_TIMES, health.STEP_DEVICE_TIMES),
    explains=("device_waits_for_host", "outlier_steps"),
)
def python_in_the_loop(facts: Facts, *, least_share: float = 0.05) -> Iterator[Finding]:
    """The step's thread runs Python, and nothing else, while no operator works: metrics, logging, waiting, reading files.

    Stretches of a step of 1 ms or more in which no thread of the process is in an operator, and nobody loads data.

    Of the stretches between one operator and another the median over all steps counts, which is 0 where fewer than half of
    the steps have one: what happens now and then is as likely the doing of another process, which had the processor.
    Optimizers, collections of garbage, communication and checkpoints do not count; they have rules of their own. Where there
    is an accelerator, only the time in which it is idle does.
    """
    if not facts.step_ns or not facts.names.str.starts_with("aten::").any():
        return
    start = facts.steps["start_ns"].to_numpy()
    step_ranges = merge_intervals(start, start + facts.steps["duration_ns"].to_numpy())
    gaps = subtract(step_ranges, _busy_intervals(facts))
    if gaps.length_ns < least_share * facts.step_ns * facts.steps.height:
        return
    gaps = _long_gaps(gaps)
    if len(gaps.start) and facts.device != CORE_CPU:
        tasks = computing_tasks(facts.trace).select("start_ns", "end_ns").collect()
        gaps = _long_gaps(subtract(gaps, merged(tasks)))
    if not len(gaps.start):
        return
    stretches = _recurring_stretches(facts, gaps)
    total = float(stretches.group_by("before", "after").agg(pl.col("median_ns").first())["median_ns"].sum())
    if total < least_share * facts.step_ns:
        return
    likely = (1 - _PYTHON_REMAINS) * total
    has_frames = facts.trace.required("python").head(1).collect().height > 0
    by_place = _frames_of_stretches if has_frames else _calls_before_stretches
    evidence = [
        by_place(facts, stretches, Evidence("python_alone", total, "ns", steps_of(stretches))),
        Evidence("stretches", stretches.height / facts.steps.height, "count"),
    ]
    if not has_frames:
        evidence.append(Evidence("no_python_calls", 0, "", per_step=False))
    case: dict[str, str | int | float] = {} if has_frames else {"case": "no_python_calls"}
    if not has_frames and evidence[0].places:
        case = {"case": "behind_operator", "operator": evidence[0].places[0][:_LONGEST]}
    saving = Saving(total / 2, likely, total)
    yield facts.make_finding(
        python_in_the_loop.name,
        evidence,
        saving,
        confidence=0.7,
        part="" if facts.device == CORE_CPU else "idle_ns",
        values=case,
        # no operator runs there, so none is recorded
        recording_ns=0.0,
    )


def _long_gaps(gaps: Intervals) -> Intervals:
    """Those of 1 ms or more."""
    long = gaps.end - gaps.start >= _LEAST_NS
    return Intervals(gaps.start[long], gaps.end[long])


def _recurring_stretches(facts: Facts, gaps: Intervals) -> pl.DataFrame:
    """Those of some long gaps that half of the steps have at the same place.

    Returns:
        start_ns, end_ns, step, before and after (names of the calls around it), median_ns (of its place, over all steps).
    """
    start, end = gaps
    scope, steps = pl.col("scope"), facts.steps.sort("start_ns")
    calls = facts.named_calls.filter(scope.is_in([SCOPE_FUNCTION, SCOPE_BACKWARD])).select("name", "start_ns", "end_ns")
    by_end, by_start = (np.argsort(calls[column].to_numpy(), kind="stable") for column in ("end_ns", "start_ns"))
    before = np.searchsorted(calls["end_ns"].to_numpy()[by_end], start, side="right") - 1
    after = np.searchsorted(calls["start_ns"].to_numpy()[by_start], end, side="left")

    def call_names_at(order: Int64Array, place: Int64Array) -> pl.Series:
        exists = (place >= 0) & (place < calls.height)
        rows = order[np.where(exists, place, 0)] if calls.height else place
        texts: pl.Series = calls["name"].gather(pl.Series(rows).set(pl.Series(~exists), None)).cast(pl.String)
        return texts

    step = np.searchsorted(steps["start_ns"].to_numpy(), start, side="right") - 1
    stretches = pl.DataFrame(
        {
            "start_ns": start,
            "end_ns": end,
            "step": steps["step"].gather(step),
            "before": call_names_at(by_end, before),
            "after": call_names_at(by_start, after),
        }
    )
    place = ["before", "after"]
    each = stretches.group_by(*place, "step").agg(length=(pl.col("end_ns") - pl.col("start_ns")).sum())
    # steps without a stretch there count as 0
    missing = facts.steps.height - pl.len()
    medians = each.group_by(place).agg(pl.col("length"), missing=missing.cast(pl.Int64))
    zeros = pl.lit(0, dtype=pl.Int64).repeat_by("missing")
    medians = medians.select(*place, median_ns=pl.concat_list("length", zeros).list.median())
    return stretches.join(medians, on=place, nulls_equal=True).filter(pl.col("median_ns") > 0)


def _busy_intervals(facts: Facts) -> Intervals:
    """When an operator, the loader, the collector, communication or a checkpoint had the process."""
    trace = facts.trace
    times = ("start_ns", "end_ns")
    ops = trace.required("ops")
    calls = ops.filter(pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD]))
    ranges = ops.filter(pl.col("scope") == SCOPE_USER).filter(pl.col("name").is_in(containing(of_calls(trace), _RANGES)))
    tables = (calls, ranges, *(table for name in ("gc", "communication") if (table := trace.lazy(name)) is not None))
    return merged(pl.concat([*[table.select(times) for table in tables], facts.saves.lazy()]).drop_nulls().collect())


def _frames_of_stretches(facts: Facts, stretches: pl.DataFrame, evidence: Evidence) -> Evidence:
    """Evidence with the Python frames that most of the time passed in."""
    longest = stretches.sort(pl.col("start_ns") - pl.col("end_ns"), "start_ns").head(_NAMED)
    python = facts.on_threads(facts.trace.required("python"))
    frames = python.select(pl.col("name").cast(pl.String), "start_ns", "end_ns").collect()
    spent: dict[str, int] = {}
    for begin, end, before in longest.select("start_ns", "end_ns", "before").iter_rows():
        middle = (begin + end) // 2
        around = frames.filter((pl.col("start_ns") <= middle) & (pl.col("end_ns") > middle)).sort("start_ns")
        lines = [text for text in around["name"].to_list() if ".py(" in text]
        inner = around["name"].to_list()[-1:]
        # a built-in function says what, and the frame around it where
        frame = ", ".join(dict.fromkeys([*lines[-1:], *inner]))
        place = frame or (f"after {before}" if before else "")
        spent[place] = spent.get(place, 0) + end - begin
    places = sorted((place for place in spent if place), key=lambda place: -spent[place])
    return replace(evidence, places=tuple(places[:_FRAMES]), other_places=len(places[_FRAMES:]))


def _calls_before_stretches(facts: Facts, stretches: pl.DataFrame, evidence: Evidence) -> Evidence:
    """Evidence with the operators, of all threads, behind which the time passes, and how long it is there.

    Between two operators of the steps' thread autograd's thread may run many: each stretch has its part of their time.
    """
    length, place = pl.col("end_ns") - pl.col("start_ns"), ["before", "after"]
    each = stretches.select(
        name=names_before(facts.trace, stretches["start_ns"].to_numpy()),
        typical_ns=pl.col("median_ns") * length / length.sum().over(place),
    )
    by_name = each.drop_nulls("name").group_by("name").agg(pl.col("typical_ns").sum())
    by_name = by_name.sort("typical_ns", "name", descending=[True, False])
    lengths: list[float] = by_name["typical_ns"].to_list()
    if not lengths:
        return evidence
    count = named_places(lengths, evidence.value)
    return replace(
        evidence,
        what="python_behind",
        places=tuple(by_name["name"].head(count)),
        places_ns=tuple(lengths[:count]),
        other_places=len(lengths) - count,
        other_places_ns=sum(lengths[count:]),
        other_most=most_of_others(lengths, evidence.value, count),
    )


#: what TorchDynamo calls its ranges
_COMPILING = r"^dynamo$|\(dynamo_timed\)$"


@rule(
    rests_on=(health.OPERATOR_TIMES,),
    explains=("changing_shapes", "device_waits_for_host", "outlier_steps", "tiny_operators", "python_in_the_loop"),
    framework=PYTORCH,
)
def recompilation(facts: Facts, *, least_steps: int = 2, least_share: float = 0.02) -> Iterator[Finding]:
    """torch.compile compiles inside the recorded steps, again and again.

    The whole of compiling goes when nothing that guards a compiled function changes from step to step.

    A program that compiles in its first step alone is not meant.
    """
    compilers = containing(of_calls(facts.trace), _COMPILING)
    ranges = facts.trace.required("ops").filter(pl.col("name").is_in(compilers)).select("start_ns", "end_ns").collect()
    if ranges.is_empty() or not facts.step_ns:
        return
    steps = facts.steps.sort("start_ns")
    start = steps["start_ns"].to_numpy()
    compiling = merged(ranges)
    each = length_inside(compiling, start, start + steps["duration_ns"].to_numpy())
    each[:1] = 0
    total = float(each.sum()) / steps.height
    if (each > 0).sum() < least_steps or total < least_share * facts.step_ns:
        return
    compiled = facts.starting_with("Torch-Compiled Region:")["name"].value_counts(sort=True)
    evidence = [
        Evidence("compiling", total, "ns", tuple(steps["step"].filter(pl.Series(each > 0)).to_list()), of_mean=True),
        with_top_values(
            Evidence("compiled_versions", compiled.height, "count", per_step=False),
            compiled.rename({"name": "region"}),
            "region",
            "count",
        ),
    ]
    yield facts.make_finding(recompilation.name, evidence, Saving(0.8 * total, total, total), confidence=0.95)
