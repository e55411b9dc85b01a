"""A comparison in the terminal: the sentence first, then where the time went, and what makes it doubtful."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence

import polars as pl
from rich.console import Console

from steplens.cli.line.ending import say_next
from steplens.cli.text.bars import DEVICE, PHASES
from steplens.cli.text.text import console, duration, plain
from steplens.common.stand_ins import told_path
from steplens.comparison.causes.cause import DEVICE as OF_DEVICE
from steplens.comparison.causes.cause import Causes
from steplens.comparison.causes.sentences import state_cause
from steplens.comparison.comparison import ALIKE, CANNOT_TELL, LEAST_CHANGE, Comparison, PartChange, StepChange
from steplens.comparison.gate import KEPT, Judgement
from steplens.comparison.item_times import SELF
from steplens.comparison.operator_steps import compare_operator
from steplens.comparison.side import Side

PART_LABELS = {segment.column: segment.label for segment in (*PHASES, *DEVICE)} | {"backward_ns": "backward"}
#: names longer than that are cut
_LONGEST = 44
#: a part that changed by a smaller share of the step is not shown
_LEAST_PART = 0.001


def show_comparison(found: Comparison, judged: Sequence[Judgement], top: int) -> None:
    """Print a comparison.

    Args:
        found: what ``compare_runs`` found.
        judged: whether limits are kept.
        top: how many operators and device tasks to show.
    """
    out = console()
    out.print()
    for name, side in (("before", found.before), ("after", found.after)):
        out.print(plain(f"{name}: {told_path(side.path)}: {describe_side(side)}", "dim"), soft_wrap=True)
    print_wrapped(out, step_sentence(found.step) if found.step is not None else too_few_sentence(found), "bold")
    show_where(out, found, top)
    show_judgements(out, judged)
    runs = [shlex.quote(str(side.path)) for side in (found.before, found.after) if side.run is not None]
    say_next([f"steplens advise {runs[1]} --since {runs[0]}"] if len(runs) == 2 else [])
    say_next([f"steplens view {' '.join(runs)}"] if runs else [])


def show_where(out: Console, found: Comparison, top: int) -> None:
    """Print what makes a comparison doubtful, and where the difference lies."""
    for doubt in found.doubts:
        print_wrapped(out, f"doubtful: {doubt}", "yellow")
    parts = [part for part in found.parts if abs(part.difference_ns) >= _LEAST_PART * (found.before.step_ns or 0.0)]
    if parts:
        _show_parts(out, parts)
    if found.causes is not None:
        _show_causes(out, found.causes, top)
    changed = found.operators.filter(pl.col("difference_ns") != 0)
    if changed.height:
        _show_operators(out, found, changed.head(top))
    changed = found.device_time.rows.filter(pl.col("difference_ns") != 0)
    if changed.height:
        before_ns, after_ns = (float(found.device_time.rows[name].sum()) for name in ("before_ns", "after_ns"))
        matched = f"{100 * (found.device_time.matched or 0.0):.0f} % of it is of operators that both sides have"
        title = (
            f"device time per step, {duration(before_ns)} -> {duration(after_ns)}, by the operator that launched it; {matched}"
        )
        _show_paths(out, title, changed.head(top))


def show_judgements(out: Console, judged: Sequence[Judgement]) -> None:
    """Print whether limits are kept."""
    for judgement in judged:
        out.print(plain(_judgement_sentence(judgement), "" if judgement.verdict == KEPT else "bold"), soft_wrap=True)


def step_sentence(step: StepChange, counted: str = "recordings a side like these") -> str:
    """What became of the step time, in a sentence.

    Args:
        step: what was found.
        counted: what more of would tell.
    """
    interval = f"the interval of 95 % is {_signed_percent(step.low)} to {_signed_percent(step.high)}"
    if step.step_verdict == ALIKE:
        return f"A step is as long as before, within {100 * LEAST_CHANGE:.0f} %: {_signed_percent(step.ratio)}; {interval}."
    if step.step_verdict == CANNOT_TELL:
        if step.runs_needed is None:
            more = "Not even a thousand recordings like these would tell."
        else:
            least = max(abs(step.ratio), LEAST_CHANGE)
            more = f"To tell a change of {100 * least:.1f} % takes about {step.runs_needed} {counted}."
        return f"Cannot tell whether a step became longer: {_signed_percent(step.ratio)}; {interval}. {more}"
    return f"A step is {abs(100 * step.ratio):.1f} % {step.step_verdict}; {interval}."


def too_few_sentence(found: Comparison) -> str:
    """What is said in the place of ``step_sentence`` where a side has too few steps."""
    counts = [f"{side.step_count} step{'s' * (side.step_count != 1)}" for side in (found.before, found.after)]
    return f"Cannot tell whether a step became longer: there are {counts[0]} before and {counts[1]} after, and 3 are the least."


def describe_side(side: Side) -> str:
    """What a side is of, in words: its usual step, how many steps and recordings."""
    ranks = max((recording.ranks for recording in side.recordings), default=0)
    count = len(side.recordings)
    if side.step_ns is None:
        return "no steps"
    words = [f"{duration(side.step_ns)} a step (median)", f"{side.step_count} step{'s' * (side.step_count > 1)}"]
    words += [f"{count} recordings"] if count > 1 else []
    words += [f"{ranks} ranks"] if ranks > 1 else []
    return ", ".join(words)


def _signed_percent(ratio: float) -> str:
    return f"{100 * ratio:+.1f} %"


def _show_parts(out: Console, parts: Sequence[PartChange]) -> None:
    out.print(plain("where, mean of the usual steps"))
    width = max(len(_part_label(part.part)) for part in parts)
    for part in parts:
        of_change = f"  {100 * part.share:.0f} % of the change" if part.share is not None else ""
        doubt = "" if part.is_certain or part.error_ns is None else "  (chance may explain it)"
        change = f"{'+' if part.difference_ns > 0 else '-'}{duration(abs(part.difference_ns))}"
        times = f"{duration(part.before_ns):>10} -> {duration(part.after_ns):>10}  {change:>11}"
        out.print(plain(f"  {_part_label(part.part).ljust(width)}  {times}{of_change}{doubt}"), soft_wrap=True)


def _show_causes(out: Console, found: Causes, top: int) -> None:
    """What explains the change, the largest first: what chance may explain is shown where nothing else is, and counted else."""
    certain = [cause for cause in found.causes if cause.is_certain]
    shown = (certain or [cause for cause in found.causes if cause.difference_ns])[:top]
    if not shown:
        return
    told = "" if found.explained is None else f"; those beyond chance make up {100 * found.explained:.0f} % of it"
    unit = "of the device" if found.side == OF_DEVICE else "of the host"
    out.print(plain(f"what explains the change of a step, time {unit}{told}"), soft_wrap=True)
    for cause in shown:
        share = f"{100 * cause.share:.0f} %" if cause.share is not None else ""
        doubt = "" if cause.is_certain or cause.error_ns is None else "  (chance may explain it)"
        out.print(plain(f"  {_signed_time(cause.difference_ns):>11}  {share:>5}  {state_cause(cause)}{doubt}"), soft_wrap=True)
    others = found.change_ns - sum(cause.difference_ns for cause in shown)
    count = len(found.causes) - len(shown)
    if count:
        more = max(len(certain) - len(shown), 0)
        names = f"{count} more, {more} of them beyond chance" if more else f"{count} more, which chance may explain"
        out.print(plain(f"  {_signed_time(others):>11}  {names}", "dim"), soft_wrap=True)
    for held in found.memory:
        out.print(plain(f"  {held.sentence}"), soft_wrap=True)


def _signed_time(ns: float) -> str:
    return f"{'+' if ns > 0 else '-'}{duration(abs(ns))}"


def _part_label(part: str) -> str:
    return PART_LABELS.get(part, part)


def _show_operators(out: Console, found: Comparison, rows: pl.DataFrame) -> None:
    out.print(plain("operators, self time per step"))
    names = [cut_name(name) for name in rows["name"].to_list()]
    width = max(map(len, names))
    for name, row in zip(names, rows.iter_rows(named=True), strict=True):
        before, after = row["before_self_ns"], row["after_self_ns"]
        change = f"{'+' if row['difference_ns'] > 0 else '-'}{duration(abs(row['difference_ns']))}"
        percent = f"{_signed_percent(row['difference_ns'] / before):>9}" if before else " " * 9
        difference = compare_operator(found.before, found.after, row["name"], SELF).difference
        doubt = "  (chance may explain it)" if difference is not None and not difference.is_certain else ""
        times = f"{_time_or_none(before):>10} -> {_time_or_none(after):>10}  {change:>11} {percent}"
        out.print(
            plain(f"  {name.ljust(width)}  {times}  {_call_counts(row['before_calls'], row['after_calls'])}{doubt}"),
            soft_wrap=True,
        )


def _show_paths(out: Console, title: str, rows: pl.DataFrame) -> None:
    out.print(plain(title), soft_wrap=True)
    names = [_shorten_name(name) for name in _path_names(rows)]
    width = max(map(len, names))
    for name, row in zip(names, rows.iter_rows(named=True), strict=True):
        change = f"{'+' if row['difference_ns'] > 0 else '-'}{duration(abs(row['difference_ns']))}"
        times = f"{duration(row['before_ns']):>10} -> {duration(row['after_ns']):>10}  {change:>11}"
        launched = [row["before_launched_by"] or "nothing", row["after_launched_by"] or "nothing"]
        launchers = f"  {launched[0]} -> {launched[1]}" if launched[0] != launched[1] else ""
        out.print(plain(f"  {name.ljust(width)}  {times}{launchers}"), soft_wrap=True)


def _path_names(rows: pl.DataFrame) -> list[str]:
    """The last operator of each path with its module, and with what calls it where several rows would have one name."""
    names = [f"{row['module']}: {row['name']}" if row["module"] else row["name"] for row in rows.iter_rows(named=True)]
    paths = [" > ".join(path.split(" > ")[-2:]) for path in rows["path"].to_list()]
    return [path if names.count(name) > 1 else name for name, path in zip(names, paths, strict=True)]


def cut_name(name: str) -> str:
    """A name with its beginning, which tells operators and kernels apart."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."


def _shorten_name(name: str) -> str:
    """A name with its end, which tells modules apart."""
    return name if len(name) <= _LONGEST else f"...{name[-(_LONGEST - 3) :]}"


def _time_or_none(ns: float | None) -> str:
    return "none" if ns is None else duration(ns)


def _call_counts(before: float | None, after: float | None) -> str:
    counts = [f"{count or 0:.4g}" for count in (before, after)]
    return f"{counts[0]} call{'s' * (counts[0] != '1')}" if counts[0] == counts[1] else f"{counts[0]} -> {counts[1]} calls"


def _judgement_sentence(judgement: Judgement) -> str:
    if judgement.ratio is None or judgement.low is None or judgement.high is None:
        return f"limit {judgement.limit}: {judgement.verdict}: {judgement.reason}"
    interval = f"{_signed_percent(judgement.ratio)}, {_signed_percent(judgement.low)} to {_signed_percent(judgement.high)}"
    return f"limit {judgement.limit}: {judgement.verdict}: {interval}"


def print_wrapped(out: Console, text: str, style: str) -> None:
    """Print a sentence in lines of the terminal's width; in one line where it goes elsewhere."""
    if not out.is_terminal:
        # whoever searches a log for a sentence finds it
        out.print(plain(text, style), soft_wrap=True)
        return
    for line in textwrap.wrap(text, width=max(40, out.width), break_long_words=False, break_on_hyphens=False):
        out.print(plain(line, style), soft_wrap=True)
