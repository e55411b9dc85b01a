"""Comparisons as Markdown for a pull request or the summary of a job on GitHub: the verdict first, then limits, doubts and where.

GitHub refuses a comment of more than 65,536 characters, and a job's summary of more than 1 MiB a step. What is written fits into
the smaller of both, counted in bytes: what is less important is left out, and that is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from steplens.common.display import duration
from steplens.comparison.reports.escaping import code_span, plain_text

if TYPE_CHECKING:
    from steplens.comparison.causes.cause import Causes
    from steplens.comparison.comparison import Comparison
    from steplens.comparison.gate import Judgement
    from steplens.comparison.reports.reported import Reported

#: bytes; whoever posts it has room for lines of its own
MOST_BYTES = 60_000
#: rows of a table
_MOST_ROWS = 100
_LEFT_OUT = "*What GitHub has no room for was left out; `steplens compare --json` has everything.*"


def markdown_report(comparisons: Sequence[Reported], top: int) -> str:
    """A section for each comparison.

    Args:
        comparisons: what was compared, with judgements and what is wrong with it.
        top: how many operators and device tasks to show.
    """
    heads = [_head_of(reported) for reported in comparisons]
    bodies = [list(_make_sections(reported, min(top, _MOST_ROWS))) for reported in comparisons]
    return _fit_sections(heads, bodies)


def markdown_problem(sides: Sequence[str], problem: str) -> str:
    """The report where nothing could be compared.

    Args:
        sides: the paths that were to be compared.
        problem: why they were not.
    """
    head = f"### Comparison of {', '.join(map(code_span, sides))}\n\n**Nothing was compared.** {plain_text(problem)}"
    return _fit_sections([head], [[]])


def _head_of(reported: Reported) -> str:
    before, after = (code_span(side.name) for side in reported.named_sides)
    sentences = [*_limits_sentence(reported.judgements), f"**{plain_text(reported.verdict_text)}**"]
    problems = [f"\n\n> [!CAUTION]\n> {plain_text(problem)}" for problem in reported.problems]
    return f"### {before} → {after}\n\n{' '.join(sentences)}{''.join(problems)}"


def _limits_sentence(judgements: Sequence[Judgement]) -> Iterator[str]:
    """How many limits are exceeded, cannot be told and are kept, where there are any."""
    from steplens.comparison.gate import CANNOT_TELL, EXCEEDED, KEPT

    counts = Counter(judgement.verdict for judgement in judgements)
    words = {EXCEEDED: ("exceeded", "is exceeded", "are exceeded"), CANNOT_TELL: ("", "cannot be told", "cannot be told")}
    words[KEPT] = ("", "is kept", "are kept")
    parts = [f"{counts[verdict]} {words[verdict][1 if counts[verdict] == 1 else 2]}" for verdict in words if counts[verdict]]
    if parts:
        yield f"**Of {len(judgements)} limit{'s' * (len(judgements) > 1)} {', '.join(parts)}.**"


def _make_sections(reported: Reported, top: int) -> Iterator[str]:
    """What stands below the verdict, the most important first."""
    comparison = reported.comparison
    yield from _limits_section(reported.judgements)
    if reported.all_doubts:
        yield "\n".join(["> [!WARNING]", *(f"> - doubtful: {plain_text(doubt)}" for doubt in reported.all_doubts)])
    before, after = (f"{code_span(side.name)}: {plain_text(side.description)}" for side in reported.named_sides)
    explained = f"\n\n{plain_text(reported.explained[0].upper() + reported.explained[1:])}" if reported.explained else ""
    medians = f"\n\n{plain_text(reported.medians[0].upper() + reported.medians[1:])}" if reported.medians else ""
    yield f"- before: {before}\n- after: {after}{medians}{explained}"
    yield from _parts_section(comparison)
    if comparison.causes is not None:
        yield from _causes_section(comparison.causes, top)
    yield from _held_section(comparison)
    yield from _operators_section(comparison, top)
    yield from _device_time_section(comparison, top)


def _limits_section(judgements: Sequence[Judgement]) -> Iterator[str]:
    from steplens.comparison.reports.sentences import interval_text, signed_percent

    rows = []
    for judgement in judgements:
        if judgement.ratio is None or judgement.low is None or judgement.high is None:
            change = ["", plain_text(judgement.reason)]
        else:
            change = [signed_percent(judgement.ratio), interval_text(judgement.low, judgement.high)]
        rows.append([code_span(judgement.limit), f"**{judgement.verdict}**", *change])
    if rows:
        yield _format_table(["limit", "", "change", "interval of 95 %"], "llrl", rows)


def _parts_section(comparison: Comparison) -> Iterator[str]:
    from steplens.comparison.reports.sentences import CHANCE, PART_LABELS, shown_parts, signed_duration

    rows = []
    for part in shown_parts(comparison):
        share = "" if part.share is None else f"{100 * part.share:.0f} %"
        doubt = "" if part.is_certain or part.error_ns is None else CHANCE
        times = [duration(part.before_ns), duration(part.after_ns), signed_duration(part.difference_ns)]
        rows.append([PART_LABELS[part.part], *times, share, doubt])
    if rows:
        header = ["part of the step (mean of the usual steps)", "before", "after", "change", "share of the change", ""]
        yield _format_table(header, "lrrrrl", rows)


def _causes_section(causes: Causes, top: int) -> Iterator[str]:
    from steplens.comparison.causes.sentences import state_cause
    from steplens.comparison.reports.sentences import CHANCE, causes_title, other_causes, signed_duration

    rows = []
    shown_ns = 0.0
    for cause in causes.shown_first(top):
        share = f"{100 * cause.share:.0f} %" if cause.share is not None else ""
        doubt = "" if cause.is_certain or cause.error_ns is None else CHANCE
        rows.append([plain_text(state_cause(cause)), signed_duration(cause.difference_ns), share, doubt])
        shown_ns += cause.difference_ns
    if not rows:
        return
    if remaining := other_causes(causes, top):
        rows.append([remaining, signed_duration(causes.change_ns - shown_ns), "", ""])
    title = causes_title(causes)
    yield _format_table([f"{title[0].upper()}{title[1:]}", "change", "share of the change", ""], "lrrl", rows)


def _held_section(comparison: Comparison) -> Iterator[str]:
    """What became of the memory peak, and which sides cannot tell that and causes."""
    from steplens.comparison.reports.sentences import memory_sentences, unexplained_sentences

    sentences = [*unexplained_sentences(comparison), *memory_sentences(comparison)]
    if sentences:
        yield "\n".join(f"- {plain_text(sentence.strip())}" for sentence in sentences)


def _operators_section(comparison: Comparison, top: int) -> Iterator[str]:
    from steplens.comparison.reports.sentences import (
        CHANCE,
        call_counts,
        changed_rows,
        may_be_chance,
        signed_duration,
        signed_percent,
        time_or_none,
    )

    changed = changed_rows(comparison.operators)
    rows = []
    for row in changed.head(top).iter_rows(named=True):
        before, after = row["before_self_ns"], row["after_self_ns"]
        percent = signed_percent(row["difference_ns"] / before) if before else ""
        times = [time_or_none(before), time_or_none(after), signed_duration(row["difference_ns"]), percent]
        doubt = CHANCE if may_be_chance(comparison, row["name"]) else ""
        rows.append([code_span(row["name"]), *times, call_counts(row["before_calls"], row["after_calls"]), doubt])
    if rows:
        table = _format_table(["operator", "before", "after", "change", "", "per step", ""], "lrrrrll", rows)
        yield _fold_text(f"Operators, self time per step: {_how_many(len(rows), changed.height)}", table)


def _device_time_section(comparison: Comparison, top: int) -> Iterator[str]:
    from steplens.comparison.reports.sentences import changed_rows, device_time_title, path_names, signed_duration

    changed = changed_rows(comparison.device_time.rows)
    largest = changed.head(top)
    rows = []
    for name, row in zip(path_names(largest), largest.iter_rows(named=True), strict=True):
        times = [duration(row["before_ns"]), duration(row["after_ns"]), signed_duration(row["difference_ns"])]
        launched = [row["before_launched_by"] or "nothing", row["after_launched_by"] or "nothing"]
        rows.append([code_span(name), *times, " → ".join(map(code_span, launched)) if launched[0] != launched[1] else ""])
    if rows:
        title = device_time_title(comparison)
        table = _format_table(["operator", "before", "after", "change", "launched by"], "lrrrl", rows)
        yield _fold_text(f"{title[0].upper()}{title[1:]}: {_how_many(len(rows), changed.height)}", table)


def _how_many(count: int, of_all: int) -> str:
    return f"the largest {count} of {of_all} changes" if count < of_all else f"{count} change{'s' * (count > 1)}"


def _fold_text(title: str, text: str) -> str:
    """Text behind a title; between HTML and Markdown an empty line is due."""
    return f"<details><summary>{plain_text(title)}</summary>\n\n{text}\n\n</details>"


def _format_table(header: Sequence[str], alignment: str, rows: Sequence[Sequence[str]]) -> str:
    rules = [{"l": ":---", "r": "---:"}[side] for side in alignment]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rules, *rows))


def _fit_sections(heads: Sequence[str], bodies: Sequence[Sequence[str]]) -> str:
    """What has room, in its order: verdicts come before all tables, and each comparison's first table before any second one."""
    left = MOST_BYTES - len(_LEFT_OUT.encode())
    fitting: list[list[str]] = [[] for _ in heads]
    is_whole = True
    ranked = [(number, head) for number, head in enumerate(heads)]
    for depth in range(max(map(len, bodies), default=0)):
        ranked += [(number, body[depth]) for number, body in enumerate(bodies) if depth < len(body)]
    for number, section in ranked:
        size = len(section.encode()) + len("\n\n")
        # without its head nobody knows what a section is of
        if size > left or (section is not heads[number] and not fitting[number]):
            is_whole = False
            continue
        fitting[number].append(section)
        left -= size
    sections = [section for of_comparison in fitting for section in of_comparison]
    return "\n\n".join([*sections, *([] if is_whole else [_LEFT_OUT])]) + "\n"
