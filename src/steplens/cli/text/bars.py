"""Stacked bars of a step: one cell per slice of time, a colour per phase or, without colours, a letter."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from rich.text import Text

BLOCK = "█"


@dataclasses.dataclass(frozen=True)
class Segment:
    """One phase of a bar.

    Attributes:
        column: the column of ``Run.steps()`` that holds it, in nanoseconds.
        label: what the legend calls it.
        letter: the cell when there are no colours.
        style: the colour when there are.
    """

    column: str
    label: str
    letter: str
    style: str


#: column that ``split_backward`` adds
BACKWARD_ALONE = "backward_alone_ns"

#: operators of a step that are part of none of its phases
BETWEEN_PHASES = "between the phases"

#: the phases of the host, which add up to its duration
PHASES = (
    Segment("data_wait_ns", "data loading", "d", "red"),
    Segment("forward_ns", "forward", "f", "blue"),
    Segment(BACKWARD_ALONE, "backward", "b", "magenta"),
    Segment("gradient_sync_ns", "gradient synchronisation", "s", "yellow"),
    Segment("optimizer_ns", "optimizer", "o", "green"),
    Segment("device_wait_ns", "waiting for the device", "w", "bright_red"),
    Segment("between_ns", BETWEEN_PHASES, "t", "bright_blue"),
    Segment("python_ns", "Python outside the phases", ".", "bright_black"),
    Segment("host_rest_ns", "not told apart", "?", "white"),
)

#: the parts of the device period, which add up to it
DEVICE = (
    Segment("computing_ns", "computing", "c", "cyan"),
    Segment("exposed_communication_ns", "exposed communication", "m", "yellow"),
    Segment("exposed_copy_ns", "exposed copies", "y", "bright_magenta"),
    Segment("idle_ns", "idle", "-", "bright_black"),
)


def split_backward(row: Mapping[str, float | None]) -> dict[str, float | None]:
    """A row of phases in which gradient synchronisation stands beside the rest of backward, and not inside it."""
    backward = row.get("backward_ns")
    alone = None if backward is None else backward - (row.get("gradient_sync_ns") or 0)
    return {**row, BACKWARD_ALONE: alone}


def split_rest(row: Mapping[str, float | None], whole: str) -> dict[str, float | None]:
    """A row of phases with the rest of the step where only some of them are known, ``host_rest_ns``; null elsewhere."""
    phases = [row.get(segment.column) for segment in PHASES[:-1]]
    recorded = [length for length in phases if length is not None]
    is_partial = 0 < len(recorded) < len(phases) and row.get("python_ns") is None
    return {**row, "host_rest_ns": (row.get(whole) or 0) - sum(recorded) if is_partial else None}


def cell_counts(values: Sequence[float], whole: float, width: int) -> list[int]:
    """How many cells each value gets of ``width`` cells that stand for ``whole``.

    Ends are rounded, not lengths, so that the error of a bar is below one cell however many values it has.
    """
    ends = [0]
    total = 0.0
    for value in values:
        total += max(value, 0.0)
        ends.append(round(total / whole * width) if whole > 0 else 0)
    return [min(end, width) - min(start, width) for start, end in itertools.pairwise(ends)]


def step_bar(
    row: Mapping[str, float | None], segments: Sequence[Segment], longest_ns: float, width: int, *, colour: bool
) -> Text:
    """The bar of one step, as long as the step is compared with the longest one."""
    lengths = cell_counts([float(row.get(segment.column) or 0) for segment in segments], longest_ns, width)
    text = Text()
    for segment, length in zip(segments, lengths, strict=True):
        text.append((BLOCK if colour else segment.letter) * length, segment.style if colour else "")
    return text


def legend_lines(segments: Sequence[Segment], shares: Sequence[str], width: int, *, colour: bool) -> list[Text]:
    """What the colours or letters mean, each with its share of all steps, in lines of at most ``width`` cells."""
    lines = [Text()]
    for segment, share in zip(segments, shares, strict=True):
        block = BLOCK if colour and segment.style else segment.letter
        item = Text(block, segment.style if colour else "") + Text(f" {segment.label} {share}")
        if lines[-1] and len(lines[-1]) + 2 + len(item) > width:
            lines.append(Text())
        lines[-1] += Text("  ") + item if lines[-1] else item
    return lines
