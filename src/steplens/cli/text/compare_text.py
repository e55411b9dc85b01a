"""A comparison in the terminal: the sentence first, then where the time went, and what makes it doubtful."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence

import polars as pl
from rich.console import Console

from steplens.cli.line.ending import say_next
from steplens.cli.text.text import console, duration, plain
from steplens.common.stand_ins import told_path
from steplens.comparison.causes.cause import Causes
from steplens.comparison.causes.sentences import state_cause
from steplens.comparison.comparison import CANNOT_TELL, Comparison, PartChange
from steplens.comparison.gate import KEPT, Judgement
from steplens.comparison.reports.sentences import (
    CHANCE,
    PART_LABELS,
    call_counts,
    causes_title,
    changed_rows,
    describe_side,
    device_time_title,
    judgement_sentence,
    may_be_chance,
    memory_sentences,
    other_causes,
    path_names,
    shown_parts,
    signed_duration,
    signed_percent,
    time_or_none,
    unexplained_sentences,
    verdict_sentence,
)
from steplens.comparison.side import Side

#: names longer than that are cut
_LONGEST = 44
#: of one recording a side little can be told
_RECORD_MORE = (
    "steplens run --active 100 --out FOLDER train.py, five times for each version and in turn; then compare the two folders"
)


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
    print_wrapped(out, verdict_sentence(found), "bold")
    show_where(out, found, top)
    show_judgements(out, judged)
    if (
        found.step is not None
        and found.step.step_verdict == CANNOT_TELL
        and 1 in map(_count_recordings, (found.before, found.after))
    ):
        say_next([_RECORD_MORE])
    runs = [shlex.quote(str(side.path)) for side in (found.before, found.after) if side.run is not None]
    say_next([f"steplens advise {runs[1]} --since {runs[0]}"] if len(runs) == 2 else [])
    say_next([f"steplens view {' '.join(runs)}"] if runs else [])


def _count_recordings(side: Side) -> int:
    return len(side.recordings)


def show_where(out: Console, found: Comparison, top: int) -> None:
    """Print what makes a comparison doubtful, and where the difference lies."""
    for doubt in found.doubts:
        print_wrapped(out, f"doubtful: {doubt}", "yellow")
    parts = shown_parts(found)
    if parts:
        _show_parts(out, parts)
    if found.causes is not None:
        _show_causes(out, found.causes, top)
    for sentence in (*unexplained_sentences(found), *memory_sentences(found)):
        out.print(plain(sentence), soft_wrap=True)
    changed = changed_rows(found.operators)
    if changed.height:
        _show_operators(out, found, changed.head(top))
    changed = changed_rows(found.device_time.rows)
    if changed.height:
        _show_paths(out, device_time_title(found), changed.head(top))


def show_judgements(out: Console, judged: Sequence[Judgement]) -> None:
    """Print whether limits are kept."""
    for judgement in judged:
        out.print(plain(judgement_sentence(judgement), "" if judgement.verdict == KEPT else "bold"), soft_wrap=True)


def _show_parts(out: Console, parts: Sequence[PartChange]) -> None:
    out.print(plain("where, mean of the usual steps"))
    width = max(len(PART_LABELS[part.part]) for part in parts)
    for part in parts:
        of_change = f"  {100 * part.share:.0f} % of the change" if part.share is not None else ""
        doubt = "" if part.is_certain or part.error_ns is None else f"  ({CHANCE})"
        change = signed_duration(part.difference_ns)
        times = f"{duration(part.before_ns):>10} -> {duration(part.after_ns):>10}  {change:>11}"
        out.print(plain(f"  {PART_LABELS[part.part].ljust(width)}  {times}{of_change}{doubt}"), soft_wrap=True)


def _show_causes(out: Console, found: Causes, top: int) -> None:
    """What explains the change, the largest first: what chance may explain is shown where nothing else is, and counted else."""
    causes = found.shown_first(top)
    if not causes:
        return
    out.print(plain(causes_title(found)), soft_wrap=True)
    for cause in causes:
        share = f"{100 * cause.share:.0f} %" if cause.share is not None else ""
        doubt = "" if cause.is_certain or cause.error_ns is None else f"  ({CHANCE})"
        out.print(plain(f"  {signed_duration(cause.difference_ns):>11}  {share:>5}  {state_cause(cause)}{doubt}"), soft_wrap=True)
    if names := other_causes(found, top):
        remaining_ns = found.change_ns - sum(cause.difference_ns for cause in causes)
        out.print(plain(f"  {signed_duration(remaining_ns):>11}  {names}", "dim"), soft_wrap=True)


def _show_operators(out: Console, found: Comparison, rows: pl.DataFrame) -> None:
    out.print(plain("operators, self time per step"))
    names = [cut_name(name) for name in rows["name"].to_list()]
    width = max(map(len, names))
    for name, row in zip(names, rows.iter_rows(named=True), strict=True):
        before, after = row["before_self_ns"], row["after_self_ns"]
        change = signed_duration(row["difference_ns"])
        percent = f"{signed_percent(row['difference_ns'] / before):>9}" if before else " " * 9
        doubt = f"  ({CHANCE})" if may_be_chance(found, row["name"]) else ""
        times = f"{time_or_none(before):>10} -> {time_or_none(after):>10}  {change:>11} {percent}"
        out.print(
            plain(f"  {name.ljust(width)}  {times}  {call_counts(row['before_calls'], row['after_calls'])}{doubt}"),
            soft_wrap=True,
        )


def _show_paths(out: Console, title: str, rows: pl.DataFrame) -> None:
    out.print(plain(title), soft_wrap=True)
    names = [_shorten_name(name) for name in path_names(rows)]
    width = max(map(len, names))
    for name, row in zip(names, rows.iter_rows(named=True), strict=True):
        change = signed_duration(row["difference_ns"])
        times = f"{duration(row['before_ns']):>10} -> {duration(row['after_ns']):>10}  {change:>11}"
        launched = [row["before_launched_by"] or "nothing", row["after_launched_by"] or "nothing"]
        launchers = f"  {launched[0]} -> {launched[1]}" if launched[0] != launched[1] else ""
        out.print(plain(f"  {name.ljust(width)}  {times}{launchers}"), soft_wrap=True)


def cut_name(name: str) -> str:
    """A name with its beginning, which tells operators and kernels apart."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."


def _shorten_name(name: str) -> str:
    """A name with its end, which tells modules apart."""
    return name if len(name) <= _LONGEST else f"...{name[-(_LONGEST - 3) :]}"


def print_wrapped(out: Console, text: str, style: str) -> None:
    """Print a sentence in lines of the terminal's width; in one line where it goes elsewhere."""
    if not out.is_terminal:
        # whoever searches a log for a sentence finds it
        out.print(plain(text, style), soft_wrap=True)
        return
    for line in textwrap.wrap(text, width=max(40, out.width), break_long_words=False, break_on_hyphens=False):
        out.print(plain(line, style), soft_wrap=True)
