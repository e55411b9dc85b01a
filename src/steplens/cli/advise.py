"""``steplens advise``: what to change, with proof and price; with ``--since``, whether it helped."""

from __future__ import annotations

import enum
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steplens.cli.line.arguments import InputPath, Json, Scheduler, parse_path
from steplens.cli.line.ending import next_commands, say_next
from steplens.cli.opening import keep_timelines, open_with_progress, show_work
from steplens.cli.summary.summary import verdict_row
from steplens.cli.text.text import console, print_json
from steplens.common.errors import InputError
from steplens.readers.glance import refuse_hopeless

if TYPE_CHECKING:
    from steplens.advice import Finding
    from steplens.advice.words import Words


class Language(str, enum.Enum):
    """Languages of the catalogue."""

    en = "en"
    zh = "zh"


def advise(
    path: InputPath,
    since: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="An earlier run: say what was cured and what was really saved.", parser=parse_path),
    ] = None,
    rules: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of rules of your own, a Python file each; they are run.")
    ] = None,
    language: Annotated[Language, typer.Option(metavar="LANGUAGE", help="Language of the texts: en or zh.")] = Language.en,
    scheduler: Scheduler = "",
    as_json: Json = False,
) -> None:
    """Say what to change in the training in PATH, most valuable first.

    What holds a step up comes first, and which steps all figures are of. Every finding names the cause, the evidence, and about
    how much shorter a step becomes. What rests on data that the health check calls unsafe is not judged.
    """
    for needed in (path, since):
        if needed is not None:
            refuse_hopeless(needed)
    if rules is not None and not rules.is_dir():
        raise InputError(rules, "is no folder of rules", "Name a folder with a Python file per rule")
    from steplens.advice import advise as judge
    from steplens.advice.compare import compare
    from steplens.advice.registry import all_rules, all_texts
    from steplens.advice.user_rules import load_rules
    from steplens.advice.words import Words
    from steplens.cli.text import advise_text

    user_rules, own_texts = load_rules(rules) if rules is not None else ([], {})
    words = Words(language.value, {**all_texts(), **own_texts})
    # a rule of the user's own replaces ours of the same name
    judged = tuple({rule.name: rule for rule in (*all_rules(), *user_rules)}.values())
    run = open_with_progress(path, scheduler=scheduler)
    earlier = open_with_progress(since) if since is not None else None
    with show_work("analysing"):
        run.verdict()
        advice = judge(run, judged)
        change = compare(judge(earlier, judged), advice, (earlier, run)) if earlier is not None else None
    if as_json:
        document: dict[str, Any] = {
            "verdict": verdict_row(run),
            "of": run.step_summary().sentence(),
            "step_ns": advice.step_ns,
            "together_ns": advice.together_ns,
            "likely_together_ns": advice.likely_together_ns,
            "findings": [_finding_row(finding, words) for finding in advice.findings],
            "silenced": [asdict(item) for item in advice.silenced],
        }
        if change is not None:
            parts = {name: [finding.id for finding in getattr(change, name)] for name in ("cured", "remaining", "new")}
            times = {name: getattr(change, name) for name in ("before_ns", "after_ns", "saved_ns", "promised_ns")}
            document["since"] = {**parts, **times, "common_share": change.common_share, "unlike": change.is_unlike}
        print_json(document)
    else:
        advise_text.show_verdict(run.verdict(), run.step_summary(), words)
        advise_text.show_advice(advice, words)
        if change is not None:
            advise_text.show_change(change, words)
        console().print()
        say_next(next_commands(path))
    keep_timelines(run)


def _finding_row(finding: Finding, words: Words) -> dict[str, Any]:
    text = words.of(finding)
    derived = {"id": finding.id, "level": finding.level, "share": finding.share}
    texts = {"title": text.title, "cause": text.cause, "remedy": text.remedy, "patch": text.patch}
    texts |= {"likely": text.likely, "low": text.low, "high": text.high}
    return {**derived, **asdict(finding), **texts, "documentation": words.documentation(finding)}
