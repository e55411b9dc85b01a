"""The versions of a program that a folder holds, and what was measured of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from steplens.common.errors import InputError, SteplensError
from steplens.common.listings import list_folder
from steplens.common.stand_ins import told_path
from steplens.comparison.baselines.baseline import read_baseline
from steplens.comparison.baselines.places import FOLDER, baseline_name, is_baseline
from steplens.comparison.history.history import Version
from steplens.comparison.item_times import DEVICE, SELF
from steplens.comparison.limits import MEMORY_PEAK, OPERATORS, PARTS, STEP, SUFFIX
from steplens.comparison.measure import measure_side
from steplens.comparison.noise import LEAST_STEPS, Sample, sample_mean, sample_median
from steplens.comparison.operator_steps import widen_samples
from steplens.comparison.recordings import Recording
from steplens.comparison.side import Side
from steplens.run import open_run

LEAST_VERSIONS = 2
#: in which order versions were made: as they were recorded, or as they are named, where older ones were recorded later
BY_TIME, BY_NAME = "time", "name"
#: operators that have a history, the largest ones
MOST_OPERATORS = 20
#: of a commit that are shown
_COMMIT_DIGITS = 10


@dataclass(frozen=True)
class MeasuredVersion:
    """A version: what it is called, what was measured of its recordings, and its commits of git, where these were kept."""

    name: str
    side: Side
    commits: tuple[str, ...] = ()


def find_places(folder: Path) -> list[Path]:
    """What may hold a version: folders that are not hidden, and saved baselines, by name.

    Args:
        folder: where they lie.

    Raises:
        InputError: it is no folder.
    """
    if not folder.is_dir():
        raise InputError(folder, "is a file, and a history is of a folder", "Compare single recordings with steplens compare")
    entries = [entry for entry in list_folder(folder).entries if not entry.name.startswith(".")]
    return sorted(Path(entry.path) for entry in entries if entry.is_dir() or is_baseline(Path(entry.path)))


def read_versions(
    folder: Path, by: str = BY_TIME, report: Callable[[int, int, Path], None] | None = None
) -> tuple[list[Version], list[SteplensError]]:
    """What was measured of each version that lies in a folder.

    Args:
        folder: holds a folder with recordings, or a saved baseline, of each version.
        by: their order, BY_TIME of recording or BY_NAME.
        report: told how many were read, of how many, and which is read next.

    Returns:
        those with enough steps, in order, and what is wrong with the others.

    Raises:
        InputError: it is no folder, or fewer than two can be read.
    """
    places = find_places(folder)
    sides, problems = list[MeasuredVersion](), list[SteplensError]()
    for number, place in enumerate(places):
        if report is not None:
            report(number, len(places), place)
        try:
            measured = _measure_place(place)
            if measured.side.too_few_steps is not None:
                raise measured.side.too_few_steps
            sides.append(measured)
        except SteplensError as error:
            problems.append(error)
    if len(sides) < LEAST_VERSIONS:
        count = f"{len(sides)} version{'s' * (len(sides) != 1)}"
        why = f"; of the others the first {problems[0]}" if problems else ""
        problem = f"holds {count} of a program with steps, and a history has {LEAST_VERSIONS} at least"
        baselines = folder / FOLDER
        if baselines in places and any(map(is_baseline, find_places(baselines))):
            raise InputError(
                folder, problem, f"The baselines below it are in {told_path(baselines)}: steplens history {told_path(baselines)}"
            )
        raise InputError(
            folder, problem + why, "Keep the recordings of each version in a folder of its own, and all of these in one folder"
        )
    return order_versions(measure_versions(sides), by), problems


def _measure_place(place: Path) -> MeasuredVersion:
    if is_baseline(place):
        baseline = read_baseline(place)
        return MeasuredVersion(baseline_name(place), baseline.side, baseline.commits)
    return MeasuredVersion(place.name, measure_side(open_run(place)))


def order_versions(versions: Sequence[Version], by: str = BY_TIME) -> list[Version]:
    """By when they were recorded, or by name, as where that is not known of all."""
    if by == BY_TIME and all(version.recorded_ns is not None for version in versions):
        return sorted(versions, key=lambda version: (version.recorded_ns or 0, version.name))
    return sorted(versions, key=lambda version: version.name)


def measure_versions(measured: Sequence[MeasuredVersion]) -> list[Version]:
    """The figures of versions, each with the operators that are the largest in any of them.

    Args:
        measured: versions with three steps at least.

    Raises:
        InputError: they are of other ranks.
    """
    first = measured[0].side
    for version in measured:
        if version.side.circumstances.ranks != first.circumstances.ranks:
            problem = f"is of other ranks than {first.path.name}"
            raise InputError(version.side.path, problem, "Keep versions that ran on the same ranks in one folder")
    time = DEVICE if all(version.side.has_device for version in measured) else SELF
    largest: dict[str, float] = {}
    for version in measured:
        for name, time_ns in _operator_times(version.side, time):
            largest[name] = max(largest.get(name, 0.0), time_ns)
    operators = sorted(largest, key=lambda name: (-largest[name], name))[:MOST_OPERATORS]
    return [_measure_version(version, time, operators) for version in measured]


def _operator_times(side: Side, time: str) -> list[tuple[str, float]]:
    """Name and time per step, ns, of the largest operators of a side."""
    if time == DEVICE:
        rows = side.figures.call_paths.calls.group_by("name").agg(time=pl.col("device_ns").sum())
    else:
        rows = side.figures.operator_rows.select("name", time="self_ns")
    return list(rows.sort("time", "name", descending=[True, False]).head(MOST_OPERATORS).iter_rows())


def _measure_version(measured: MeasuredVersion, time: str, operators: Sequence[str]) -> Version:
    side = measured.side
    samples: dict[str, Sequence[Sample]] = {STEP: [_sample_step(recording) for recording in side.recordings]}
    for part in PARTS:
        samples[part] = [sample for recording in side.recordings if (sample := _sample_part(recording, part)) is not None]
    peaks = [peak for peak in side.figures.memory_peaks if peak is not None]
    samples[MEMORY_PEAK] = [Sample(1, float(peak), 0.0, 0.0, 1) for peak in peaks]
    for operator in operators:
        samples[OPERATORS + operator] = widen_samples(side.figures.sample_times(time, operator))
    return Version(
        name=measured.name,
        path=side.path,
        recorded_ns=side.circumstances.begin_ns or None,
        commit=", ".join(commit[:_COMMIT_DIGITS] for commit in measured.commits),
        recordings=len(side.recordings),
        samples={figure: of_figure for figure, of_figure in samples.items() if of_figure},
        is_run=side.run is not None,
    )


def _sample_step(recording: Recording) -> Sample:
    lengths = recording.steps["step_time_ns"].to_numpy().astype(np.float64)
    return sample_median(np.log(np.maximum(lengths, 1.0)), recording.waited_share or 0.0)


def _sample_part(recording: Recording, part: str) -> Sample | None:
    values = recording.usual[part + SUFFIX].drop_nulls()
    if values.len() < LEAST_STEPS:
        return None
    return sample_mean(values.to_numpy().astype(np.float64), recording.waited_share or 0.0)
