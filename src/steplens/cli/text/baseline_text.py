"""Baselines in the terminal and as JSON: what was recorded, where and when, and what a step took."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from steplens.cli.text.compare_text import cut_name
from steplens.cli.text.text import console, duration, plain, size
from steplens.comparison.baselines.baseline import Baseline
from steplens.comparison.baselines.places import baseline_name
from steplens.comparison.circumstances import MACHINE_NAMES
from steplens.comparison.recordings import PARTS
from steplens.comparison.reports.sentences import PART_LABELS, describe_side
from steplens.comparison.side import Side

#: digits of a commit that are shown
_COMMIT_DIGITS = 10


def show_saved(name: str, side: Side, path: Path, size_bytes: int) -> None:
    """Print what was saved."""
    console().print(plain(f"saved {name}: {describe_side(side)}; {path}, {size(size_bytes)}"), soft_wrap=True)


def show_baselines(baselines: Sequence[Baseline]) -> None:
    """Print a line for each."""
    out = console()
    width = max((len(baseline_name(baseline.side.path)) for baseline in baselines), default=0)
    for baseline in baselines:
        words = [describe_side(baseline.side), _origin_text(baseline)]
        out.print(plain(f"{baseline_name(baseline.side.path).ljust(width)}  {'; '.join(words)}"), soft_wrap=True)


def describe_baseline(baseline: Baseline, top: int) -> None:
    """Print all that a user may ask of one.

    Args:
        baseline: what was read.
        top: how many operators and device tasks to show.
    """
    out = console()
    side = baseline.side
    out.print()
    out.print(plain(f"{baseline_name(side.path)}: {describe_side(side)}", "bold"), soft_wrap=True)
    out.print(plain(_origin_text(baseline)), soft_wrap=True)
    machine = [f"{MACHINE_NAMES.get(key, key)} {', '.join(values)}" for key, values in side.circumstances.machine.items()]
    out.print(plain("; ".join([f"on {', '.join(side.circumstances.devices) or 'no known device'}", *machine])), soft_wrap=True)
    for problem in side.circumstances.doubtful_steps:
        out.print(plain(f"doubtful: {problem}", "yellow"), soft_wrap=True)
    parts = [(PART_LABELS.get(name, name), part_ns) for name, part_ns in _part_means(side).items() if part_ns]
    tables = [("where, mean of the usual steps", parts)]
    tables.append(("operators, self time per step", _largest_rows(side.figures.operator_rows, "self_ns", top)))
    if side.has_device:
        tables.append(("device tasks, time per step", _largest_rows(side.figures.task_rows, "total_ns", top)))
    for title, rows in tables:
        if rows:
            out.print(plain(title))
            width = max(len(name) for name, _ in rows)
            for name, time_ns in rows:
                out.print(plain(f"  {name.ljust(width)}  {duration(time_ns):>10}"), soft_wrap=True)


def baseline_document(baseline: Baseline, top: int = 0) -> dict[str, Any]:
    """The same for JSON; times in ns.

    Args:
        baseline: what was read.
        top: how many operators and device tasks; 0 leaves them and the parts of a step out.
    """
    side = baseline.side
    circumstances = dataclasses.asdict(side.circumstances)
    document: dict[str, Any] = {
        "name": baseline_name(side.path),
        "path": str(side.path),
        "step_ns": side.step_ns,
        "steps": side.step_count,
        "recordings": len(side.recordings),
        "begin_ns": side.circumstances.begin_ns,
        "commits": list(baseline.commits),
        "changed": baseline.changed,
        "steplens": baseline.steplens,
        **{name: circumstances[name] for name in ("ranks", "devices", "machine", "options", "doubtful_steps")},
    }
    if top:
        document["parts"] = _part_means(side)
        document["operators"] = side.figures.operator_rows.sort("self_ns", "name", descending=[True, False]).head(top).to_dicts()
        tasks = side.figures.task_rows if side.has_device else side.figures.task_rows.clear()
        document["tasks"] = tasks.sort("total_ns", "name", descending=[True, False]).head(top).to_dicts()
    return document


def _origin_text(baseline: Baseline) -> str:
    words = []
    if baseline.side.circumstances.begin_ns:
        moment = datetime.datetime.fromtimestamp(baseline.side.circumstances.begin_ns / 1e9, datetime.timezone.utc)
        words.append(f"recorded {moment:%Y-%m-%d %H:%M} UTC")
    if baseline.commits:
        commits = ", ".join(commit[:_COMMIT_DIGITS] for commit in baseline.commits)
        changes = " with changes" if baseline.changed else ""
        # what was checked out when it was saved; recordings do not say theirs
        words.append(f"saved at commit{'s' * (len(baseline.commits) > 1)} {commits}{changes}")
    words.append(f"{'' if baseline.commits else 'saved '}by steplens {baseline.steplens}")
    return ", ".join(words)


def _part_means(side: Side) -> dict[str, float]:
    """The parts of the usual steps, ns, means over the recordings; without parts that are not known."""
    means = {}
    for name in PARTS:
        values = [float(mean) for recording in side.recordings if isinstance(mean := recording.usual[name].mean(), float)]
        if values:
            means[name] = float(np.mean(values))
    return means


def _largest_rows(rows: pl.DataFrame, time: str, top: int) -> list[tuple[str, float]]:
    largest = rows.sort(time, "name", descending=[True, False]).head(top)
    return [(cut_name(name), time_ns) for name, time_ns in largest.select("name", time).iter_rows()]
