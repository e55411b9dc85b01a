"""Two sides of a comparison: whether a step became slower, by how much, and where."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from steplens.analysis.step_words import number_ranges
from steplens.analysis.steps.times import DEVICE_PARTS, HOST_PARTS
from steplens.common.errors import InputError
from steplens.comparison.call_tree import NO_DEVICE_TIME, DeviceTimeByPath, match_device_time
from steplens.comparison.causes.cause import Causes
from steplens.comparison.causes.find import explain_change
from steplens.comparison.circumstances import describe_means, find_doubts
from steplens.comparison.difference import find_difference
from steplens.comparison.held_memory import HeldMemory, compare_peaks
from steplens.comparison.measure import keep_measured, measure_side
from steplens.comparison.names import join_by_name
from steplens.comparison.noise import LEAST_STEPS, Floats, Sample, sample_mean, sample_median
from steplens.comparison.side import Side
from steplens.run import Run

SLOWER, FASTER, ALIKE, CANNOT_TELL = "slower", "faster", "alike", "cannot tell"
#: a change of a step that is smaller is of no interest: sides that differ by less, the whole interval within, are alike
LEAST_CHANGE = 0.02
#: a change that is a smaller share of the step is not divided among its parts
_LEAST_SHOWN = 0.005
#: parts add up to the step but for what is rounded
_ADD_UP = 0.01


@dataclass(frozen=True)
class StepChange:
    """What became of the step time.

    Attributes:
        ratio: later over earlier, less 1: 0.05 is 5 % slower. ``low``, ``high``: its interval of 95 %.
        runs_needed: so many recordings a side, as long and as noisy as these, tell a change of ``asked_change``; None where that
            was told, or not with a thousand.
        asked_change: a change that is to be told: the least limit that was given, else ``LEAST_CHANGE``.
    """

    ratio: float
    low: float
    high: float
    runs_needed: int | None = None
    asked_change: float = LEAST_CHANGE

    @property
    def step_verdict(self) -> str:
        """SLOWER or FASTER where the step_ns interval says so, ALIKE where all of it is of no interest, else CANNOT_TELL."""
        if self.low >= -LEAST_CHANGE and self.high <= LEAST_CHANGE:
            return ALIKE
        if self.low > 0.0 or self.high < 0.0:
            return SLOWER if self.low > 0.0 else FASTER
        return CANNOT_TELL


@dataclass(frozen=True)
class PartChange:
    """What became of a part of the step.

    Attributes:
        part: a column of ``step_times``, such as "forward_ns".
        before_ns: mean over the usual steps. ``after_ns``: the same of the later side.
        error_ns: half of the interval of the difference; None where a side has too few steps to tell.
        share: of the change of the step; None where the step hardly changed.
    """

    part: str
    before_ns: float
    after_ns: float
    error_ns: float | None
    share: float | None

    @property
    def difference_ns(self) -> float:
        """After less before."""
        return self.after_ns - self.before_ns

    @property
    def is_certain(self) -> bool:
        """Whether it changed beyond what chance explains."""
        return self.error_ns is not None and abs(self.difference_ns) > self.error_ns


@dataclass(frozen=True)
class Comparison:
    """What ``compare_runs`` finds.

    Attributes:
        before: the earlier side, with which the later one is compared.
        after: the later side.
        step: what became of the step time; None where a side has too few steps (``Side.too_few_steps``).
        parts: of the parts of a step that add up to it, the largest change first; none where they are not known.
        operators: ``names.join_by_name`` of operators, self time.
        tasks: the same of device tasks; no rows where there is no accelerator.
        device_time: device time by call path, where names of tasks differ; no rows where there is no accelerator.
        doubts: sentences about what else differs.
    """

    before: Side
    after: Side
    step: StepChange | None
    parts: tuple[PartChange, ...]
    operators: pl.DataFrame
    tasks: pl.DataFrame
    device_time: DeviceTimeByPath
    doubts: tuple[str, ...]

    @cached_property
    def causes(self) -> Causes | None:
        """What explains the change of the step; None where neither calls nor tasks of both sides tell (``unexplained_sides``)."""
        sources = [side.figures.cause_source for side in (self.before, self.after)]
        return None if sources[0] is None or sources[1] is None else explain_change(sources[0], sources[1])

    @cached_property
    def memory_changes(self) -> tuple[HeldMemory, ...]:
        """The memory peak and what of it changed (``compare_peaks``); nothing where it hardly did."""
        return compare_peaks(self.before.figures.held_memory, self.after.figures.held_memory)

    @property
    def unexplained_sides(self) -> tuple[Side, ...]:
        """Sides that hold nothing that explains a change: baselines that an earlier steplens saved."""
        return tuple(side for side in (self.before, self.after) if side.figures.cause_source is None)


def compare_paths(before: str | os.PathLike[str] | Run, after: str | os.PathLike[str] | Run) -> Comparison:
    """Whether a step became slower between two runs, by how much, where, and how sure that is.

    Args:
        before: the earlier run, or its path or URL; a folder of several recordings of one program counts as so many. Or a
            baseline, as ``baseline:NAME``, or the path or URL of its file.
        after: the later one.

    Raises:
        InputError: one cannot be opened, or they ran on other ranks.
    """
    from steplens.comparison.baselines.sides import open_side  # which runs need not

    return _compare_and_keep(open_side(before), open_side(after))


def compare_runs(before: Run, after: Run) -> Comparison:
    """Compare two runs, or folders of runs, of which each recording counts as one.

    Args:
        before: the earlier side.
        after: the later side.

    Raises:
        InputError: they ran on other ranks.
    """
    return _compare_and_keep(measure_side(before), measure_side(after))


def _compare_and_keep(before: Side, after: Side) -> Comparison:
    comparison = compare_sides(before, after)
    for side in (before, after):
        if side.run is not None:
            keep_measured(side.run)
    return comparison


def compare_sides(before: Side, after: Side, asked_change: float = LEAST_CHANGE, *, are_versions: bool = False) -> Comparison:
    """Compare two sides that were measured, now or before.

    Args:
        before: the earlier side.
        after: the later side.
        asked_change: the change of the step that is to be told.
        are_versions: the sides are known to be versions of one program: that they do different things is no doubt.

    Raises:
        InputError: they ran on other ranks.
    """
    ranks = [side.circumstances.ranks for side in (before, after)]
    if ranks[0] != ranks[1] and max(map(len, ranks)) > 1:
        rank_texts = [f"rank{'s' * (len(side) > 1)} {number_ranges(side)}" for side in ranks]
        raise InputError(
            after.path,
            f"holds {rank_texts[1]}, and what it is compared with {rank_texts[0]}",
            "Compare runs on the same ranks, or one rank of each (--rank)",
        )
    calls = join_by_name(before.figures.operator_rows, after.figures.operator_rows, "self_ns")
    shapes = [_name_by_shape(side.figures.shape_rows) for side in (before, after)]
    by_shape = join_by_name(shapes[0], shapes[1], "self_ns") if shapes[0] is not None and shapes[1] is not None else None
    doubted, doubted_by_shape = (calls.clear(), None) if are_versions else (calls, by_shape)
    if before.has_device or after.has_device:
        tasks = join_by_name(before.figures.task_rows, after.figures.task_rows, "total_ns")
        device_time = match_device_time(before.figures.call_paths, after.figures.call_paths)
    else:
        tasks = calls.clear().rename({"before_self_ns": "before_total_ns", "after_self_ns": "after_total_ns"})
        device_time = NO_DEVICE_TIME
    return Comparison(
        before=before,
        after=after,
        step=None if before.too_few_steps or after.too_few_steps else _compare_steps(before, after, asked_change),
        parts=_compare_parts(before, after),
        operators=calls,
        tasks=tasks,
        device_time=device_time,
        doubts=(
            *find_doubts(before.circumstances, after.circumstances, doubted, doubted_by_shape),
            *describe_means([side.step_ns or 0.0 for side in (before, after)], [_mean_step(side) for side in (before, after)]),
        ),
    )


def _mean_step(side: Side) -> float:
    """The mean of its usual steps, ns; over several recordings the mean of theirs."""
    means = [recording.usual["step_time_ns"].mean() for recording in side.recordings if recording.usual.height]
    return float(np.mean([mean for mean in means if isinstance(mean, float)])) if means else 0.0


def _name_by_shape(rows: pl.DataFrame | None) -> pl.DataFrame | None:
    return rows if rows is None else rows.select(pl.concat_str("name", "input_shapes"), "calls", "self_ns")


def _compare_steps(before: Side, after: Side, asked_change: float) -> StepChange:
    difference = find_difference(_sample_steps(before), _sample_steps(after))
    ratio, low, high = (math.expm1(end) for end in (difference.value, difference.low_end, difference.high_end))
    change = StepChange(ratio, low, high, asked_change=asked_change)
    if change.step_verdict != CANNOT_TELL:
        return change
    return dataclasses.replace(change, runs_needed=difference.runs_needed(math.log1p(asked_change)))


def _sample_steps(side: Side) -> list[Sample]:
    """The recordings of a side by the logarithm of their steps: differences are ratios."""
    return [
        sample_median(np.log(np.maximum(_column_array(recording.steps, "step_time_ns"), 1.0)), recording.waited_share or 0.0)
        for recording in side.recordings
    ]


def _compare_parts(before: Side, after: Side) -> tuple[PartChange, ...]:
    return compare_parts(before, after, HOST_PARTS) or compare_parts(before, after, DEVICE_PARTS)


def compare_parts(before: Side, after: Side, parts: Sequence[str], *, of_step: bool = True) -> tuple[PartChange, ...]:
    """What became of parts of a step, the largest change first; none where a side does not know them.

    Args:
        before: the earlier side.
        after: the later side.
        parts: ``HOST_PARTS`` or ``DEVICE_PARTS``.
        of_step: they are to add up to the step time, else to nothing: those of the device add up to its period.
    """
    first, second = (_part_values(side, parts, of_step) for side in (before, after))
    if not first or not second:
        return ()
    contention = [recording.waited_share or 0.0 for recording in (*before.recordings, *after.recordings)]
    return _changes_of_parts(parts, first, second, max(contention))


def _changes_of_parts(
    parts: Sequence[str], before: Sequence[Floats], after: Sequence[Floats], contention: float
) -> tuple[PartChange, ...]:
    """What became of parts that add up to the step, the largest change first; arrays of shape (steps, parts)."""
    means = [np.mean([values.mean(axis=0) for values in side], axis=0) for side in (before, after)]
    step_ns, change_ns = float(means[0].sum()), float(means[1].sum() - means[0].sum())
    changes = []
    for number, part in enumerate(parts):
        first, second = ([sample_mean(values[:, number], contention) for values in side] for side in (before, after))
        before_ns, after_ns = float(means[0][number]), float(means[1][number])
        is_told = all(values.shape[0] >= LEAST_STEPS for values in (*before, *after))
        error = find_difference(first, second, unit=(before_ns + after_ns) / 2.0).error if is_told else None
        share = (after_ns - before_ns) / change_ns if abs(change_ns) > _LEAST_SHOWN * step_ns else None
        changes.append(PartChange(part, before_ns, after_ns, error, share))
    return tuple(sorted(changes, key=lambda change: -abs(change.difference_ns)))


def _part_values(side: Side, parts: Sequence[str], of_step: bool) -> list[Floats] | None:
    """The parts of the usual steps of each recording, shape (steps, parts) each; None where one lacks them, or they miss it."""
    arrays = []
    for recording in side.recordings:
        complete_steps = recording.usual.drop_nulls(list(parts))
        values = complete_steps.select(parts).to_numpy().astype(np.float64)
        step_ns = _column_array(complete_steps, "step_time_ns")
        if not complete_steps.height or (of_step and abs(values.sum() - step_ns.sum()) > _ADD_UP * step_ns.sum()):
            return None
        arrays.append(values)
    return arrays


def _column_array(frame: pl.DataFrame, name: str) -> Floats:
    return frame[name].to_numpy().astype(np.float64)
