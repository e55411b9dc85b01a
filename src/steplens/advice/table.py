"""Findings as a table, for notebooks."""

from __future__ import annotations

import os

import polars as pl

from steplens.advice.advice import advise
from steplens.advice.finding import Finding
from steplens.advice.words import Words
from steplens.run import Run, open_run

#: columns of a table of findings
FINDINGS = {
    "level": pl.String(),
    "title": pl.String(),
    "saving_ns": pl.Float64(),
    "share": pl.Float64(),
    "confidence": pl.Float64(),
    "cause": pl.String(),
    "remedy": pl.String(),
    "patch": pl.String(),
    "id": pl.String(),
}


def advice_table(run: Run | str | os.PathLike[str], language: str = "en") -> pl.DataFrame:
    """What to change in a training, most valuable first: a row per finding of ``steplens advise``.

    ``saving_ns`` is the likely saving per step, null where no time is at stake, and ``share`` its share of the step.

    Args:
        run: what ``steplens.open`` returned, or a path that it understands.
        language: "en" or "zh".

    Raises:
        InputError: nothing at the path can be read.
    """
    words = Words(language)
    findings = advise(run if isinstance(run, Run) else open_run(run)).findings
    return pl.DataFrame([_finding_row(finding, words) for finding in findings], schema=FINDINGS)


def _finding_row(finding: Finding, words: Words) -> dict[str, object]:
    text, saving = words.of(finding), finding.saving
    return {
        "level": finding.level,
        "title": text.title,
        "saving_ns": saving.likely_ns if saving is not None else None,
        "share": finding.share if saving is not None else None,
        "confidence": finding.confidence,
        "cause": text.cause,
        "remedy": text.remedy,
        "patch": text.patch,
        "id": finding.id,
    }
