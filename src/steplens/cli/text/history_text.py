"""A history in the terminal: how long a step takes now, then where figures moved, the last change first."""

from __future__ import annotations

import datetime
import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from steplens.cli.line.ending import say_next
from steplens.cli.text.bars import DEVICE, PHASES
from steplens.cli.text.text import console, duration, plain, size
from steplens.common.errors import SteplensError
from steplens.common.stand_ins import told_path
from steplens.comparison.history.history import FigureChange, FigureHistory, History, Version
from steplens.comparison.limits import MEMORY_PEAK, OPERATORS, STEP, SUFFIX

_LABELS = {segment.column: segment.label for segment in (*PHASES, *DEVICE)} | {"backward_ns": "backward"}
_NAMES = {STEP: "step", MEMORY_PEAK: "most memory allocated"}
#: so many versions that cannot be read are named
_NAMED_PROBLEMS = 3


def print_history(folder: Path, history: History, problems: Sequence[SteplensError], top: int) -> None:
    """Print a history.

    Args:
        folder: what was asked about.
        history: what ``find_history`` found.
        problems: what is wrong with versions that are left out.
        top: how many figures to show beside the step at a change.
    """
    out = console()
    versions = history.versions
    recordings = sum(version.recordings for version in versions)
    out.print()
    out.print(
        plain(f"{told_path(folder)}: {len(versions)} versions, {recordings} recordings{_describe_span(versions)}", "dim"),
        soft_wrap=True,
    )
    for problem in problems[:_NAMED_PROBLEMS]:
        out.print(plain(f"left out: {problem}", "yellow"), soft_wrap=True)
    if len(problems) > _NAMED_PROBLEMS:
        out.print(plain(f"left out: {len(problems) - _NAMED_PROBLEMS} more", "yellow"))
    step = history.find_figure(STEP)
    if step is not None:
        last = step.points[-1]
        interval = f"{duration(last.low)} to {duration(last.high)}"
        out.print(plain(f"A step of {versions[last.version].name} takes {duration(last.value)}; {interval} with 95 %.", "bold"))
    moved = _changes_by_version(history)
    if not moved:
        out.print(plain(f"No figure moved beyond what chance explains, of {len(history.figures)} that were looked at."))
    for number in sorted(moved, reverse=True):
        _print_version(history, number, moved[number], top)
    path = shlex.quote(str(folder))
    if moved:
        pair = " ".join(shlex.quote(str(version.path)) for version in _versions_around(history, step))
        say_next([f"steplens compare {pair}", f"steplens view {path}"])
    else:
        say_next([f"steplens view {path}"])


def _versions_around(history: History, step: FigureHistory | None) -> tuple[Version, Version]:
    """The last version that surely has the earlier level of the last change, and the first that surely has the new one."""
    figures = [step] if step is not None and step.changes else history.figures
    changes = [figure.changes[-1] for figure in figures if figure.changes]
    change = max(changes, key=lambda last: (last.lasts, last.version))
    return history.versions[max(change.earliest - 1, 0)], history.versions[change.latest]


def _describe_span(versions: Sequence[Version]) -> str:
    days = [_day_text(version.recorded_ns) for version in (versions[0], versions[-1]) if version.recorded_ns is not None]
    return f", {days[0]}" + (f" to {days[1]}" if days[0] != days[1] else "") if len(days) == 2 else ""


def _day_text(unix_ns: int) -> str:
    return datetime.datetime.fromtimestamp(unix_ns / 1e9, tz=datetime.timezone.utc).strftime("%Y-%m-%d")


def _changes_by_version(history: History) -> dict[int, list[tuple[FigureHistory, FigureChange]]]:
    """What moved in each version: what moved first is told with the step where both may be one change."""
    moved: dict[int, list[tuple[FigureHistory, FigureChange]]] = {}
    for figure in history.figures:
        for change in figure.changes:
            same = [place for place in moved if change.earliest <= place <= change.latest]
            place = min(same, key=lambda place: abs(place - change.version), default=change.version)
            moved.setdefault(place, []).append((figure, change))
    return moved


def _print_version(history: History, number: int, moved: list[tuple[FigureHistory, FigureChange]], top: int) -> None:
    out = console()
    versions = history.versions
    day = versions[number].recorded_ns
    out.print(plain(f"{versions[number].name}{'' if day is None else f' ({_day_text(day)})'}"), soft_wrap=True)
    of_step = moved[:1] if moved[0][0].figure == STEP else []
    besides = sorted(moved[len(of_step) :], key=lambda row: -_moved_by(*row))
    for figure, change in [*of_step, *besides[:top]]:
        out.print(plain(f"  {change_sentence(history, figure, change)}"), soft_wrap=True)
    if len(besides) > top:
        out.print(plain(f"  {len(besides) - top} more figures moved"))


def _moved_by(figure: FigureHistory, change: FigureChange) -> float:
    """By how much a figure moved, ns; more than any time where it is memory."""
    before = _value_before(figure, change)
    return math.inf if figure.figure == MEMORY_PEAK or math.isinf(change.ratio) else abs(change.ratio) * before


def _value_before(figure: FigureHistory, change: FigureChange) -> float:
    levels = [level.value for level in figure.levels if level.first < change.version]
    return levels[-1] if levels else 0.0


def change_sentence(history: History, figure: FigureHistory, change: FigureChange) -> str:
    """What moved, by how much, with the interval, and how sure the place is."""
    name = figure_name(figure.figure)
    form = size if figure.figure == MEMORY_PEAK else duration
    before = _value_before(figure, change)
    if math.isinf(change.ratio):
        return f"{name}: there was none before"
    interval = f"{_signed_percent(change.low)} to {_signed_percent(change.high)} with 95 %"
    size_text = f"{name}: {_signed_percent(change.ratio)} of {form(before)}; {interval}"
    if not change.lasts:
        return f"{size_text}; too few versions since then to say that it stays"
    if change.earliest != change.latest:
        names = [history.versions[place].name for place in (change.earliest, change.latest)]
        return f"{size_text}; it came with one of {names[0]} to {names[1]}"
    return size_text


def figure_name(figure: str) -> str:
    """What a figure is called in the terminal."""
    if figure.startswith(OPERATORS):
        return figure.removeprefix(OPERATORS)
    return _NAMES.get(figure) or _LABELS.get(figure + SUFFIX, figure)


def _signed_percent(ratio: float) -> str:
    return f"{100 * ratio:+.1f} %"
