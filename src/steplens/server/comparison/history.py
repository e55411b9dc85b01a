"""A folder of versions of a program: its figures over all of them, and where they moved."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel

from steplens.common.errors import SteplensError
from steplens.comparison.history.history import FigureHistory, History, Version, find_history
from steplens.comparison.history.versions import read_versions
from steplens.comparison.limits import MEMORY_PEAK
from steplens.server.http import errors
from steplens.server.http.errors import Problem, Refusal, path_text
from steplens.server.http.routing import create_router
from steplens.server.requests import Living, Runs
from steplens.server.runs import OpenedRun

router = create_router("/api/runs/{run}/history", "history")

#: bytes that a point takes in an answer, about
_POINT_BYTES = 200

_By = Annotated[Literal["time", "name"], Query(description="order of the versions: when they were recorded, or their names")]
_Place = Annotated[int, Query(ge=0, le=1 << 31, description="place of a version, from 0")]


class VersionShown(BaseModel):
    """A version of the program.

    Attributes:
        name: of its folder, or of the baseline.
        path: where it lies.
        recorded_ns: when its first recording began, Unix time as text; null where nothing tells.
        commit: of which commit it is; empty where that was not kept.
        recordings: how many of it there are.
        openable: whether its recordings are there, so that it can be compared in the browser.
    """

    name: str
    path: str
    recorded_ns: str | None
    commit: str
    recordings: int
    openable: bool


class LevelShown(BaseModel):
    """The level of a figure between two changes, from version ``first`` to ``last``: see ``comparison.history``, FigureLevel."""

    first: int
    last: int
    value: float


class ChangeShown(BaseModel):
    """A figure moved: see ``comparison.history``, FigureChange; ``ratio``, ``low`` and ``high`` are null where it was 0."""

    version: int
    earliest: int
    latest: int
    ratio: float | None
    low: float | None
    high: float | None
    lasts: bool


class FigureShown(BaseModel):
    """A figure in every version that has it.

    Attributes:
        figure: as limits of ``steplens compare`` name it, such as "step" or "operators.aten::mm".
        unit: "ns" or "bytes".
        versions: places of the versions that have it, in order; the next three are of these.
        values: its usual value.
        low: where the interval of 95 % of that begins. ``high``: where it ends.
        levels, changes: in order.
    """

    figure: str
    unit: str
    versions: list[int]
    values: list[float]
    low: list[float]
    high: list[float]
    levels: list[LevelShown]
    changes: list[ChangeShown]


class HistoryShown(BaseModel):
    """All figures of all versions. ``problems``: why versions are left out."""

    versions: list[VersionShown]
    figures: list[FigureShown]
    problems: list[Problem]


class OpenedPair(BaseModel):
    """The numbers under which two versions can be compared."""

    before: int
    after: int


@router.get("")
def history_of_folder(chosen: Living, by: _By = "time") -> HistoryShown:
    """The figures of all versions that lie in the folder."""
    history, problems = _find_history(chosen, by)
    return HistoryShown(
        versions=[_show_version(version) for version in history.versions],
        figures=[_show_figure(figure) for figure in history.figures],
        problems=problems,
    )


@router.post("/opened")
def open_versions(chosen: Living, runs: Runs, before: _Place, after: _Place, by: _By = "time") -> OpenedPair:
    """Have two of the versions opened beside what is shown, to be compared."""
    versions = _find_history(chosen, by)[0].versions
    if max(before, after) >= len(versions):
        raise Refusal(404, f"there are {len(versions)} versions, numbered from 0", "before, after")
    pair = [versions[place] for place in (before, after)]
    for version in pair:
        if not version.is_run:
            raise Refusal(409, "its recordings are not there, only its figures", path_text(version.path))
    return OpenedPair(before=runs.add_path(pair[0].path).id, after=runs.add_path(pair[1].path).id)


def _find_history(chosen: OpenedRun, by: str) -> tuple[History, list[Problem]]:
    def make_history() -> tuple[History, list[Problem]]:
        try:
            versions, problems = read_versions(chosen.path, by)
        except SteplensError as error:
            problem = errors.of_input(error)
            raise Refusal(409, problem.problem, problem.where, problem.remedy) from None
        return find_history(versions), [errors.of_input(problem) for problem in problems]

    return chosen.answer(
        ("history", by), make_history, lambda made: _POINT_BYTES * sum(len(figure.points) for figure in made[0].figures)
    )


def _show_version(version: Version) -> VersionShown:
    return VersionShown(
        name=path_text(version.name),
        path=path_text(version.path),
        recorded_ns=None if version.recorded_ns is None else str(version.recorded_ns),
        commit=version.commit,
        recordings=version.recordings,
        openable=version.is_run,
    )


def _show_figure(figure: FigureHistory) -> FigureShown:
    return FigureShown(
        figure=figure.figure,
        unit="bytes" if figure.figure == MEMORY_PEAK else "ns",
        versions=[point.version for point in figure.points],
        values=[point.value for point in figure.points],
        low=[point.low for point in figure.points],
        high=[point.high for point in figure.points],
        levels=[LevelShown(**vars(level)) for level in figure.levels],
        changes=[
            ChangeShown(
                version=change.version,
                earliest=change.earliest,
                latest=change.latest,
                ratio=_finite_number(change.ratio),
                low=_finite_number(change.low),
                high=_finite_number(change.high),
                lasts=change.lasts,
            )
            for change in figure.changes
        ],
    )


def _finite_number(value: float) -> float | None:
    return value if math.isfinite(value) else None
