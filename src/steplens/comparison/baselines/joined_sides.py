"""Several sides as one, of all of their recordings: how recordings are added to a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import polars as pl

from steplens.analysis.steps.choice import number_ranges
from steplens.common.errors import InputError
from steplens.comparison.call_tree import CallPaths, join_paths
from steplens.comparison.causes.cause_side import JoinedSource
from steplens.comparison.circumstances import Circumstances
from steplens.comparison.noise import Sample
from steplens.comparison.recordings import usual_step
from steplens.comparison.side import Side


def join_sides(sides: Sequence[Side], path: Path) -> Side:
    """All recordings of some sides as one side.

    Args:
        sides: one at least, each with steps.
        path: what the side is called.

    Raises:
        InputError: they are of other ranks, or two of them hold the same recording.
    """
    for number, side in enumerate(sides):
        if side.circumstances.ranks != sides[0].circumstances.ranks:
            texts = [number_ranges(ranks) for ranks in (side.circumstances.ranks, sides[0].circumstances.ranks)]
            raise InputError(side.path, f"is of rank {texts[0]}, and {sides[0].path} of rank {texts[1]}", "Give whole jobs")
        earlier = {identity for former in sides[:number] for identity in former.circumstances.identities}
        if earlier & set(side.circumstances.identities):
            raise InputError(side.path, "holds a recording that is there already", "Leave it out: it would count twice")
    if len(sides) == 1:
        return sides[0]
    recordings = tuple(chain.from_iterable(side.recordings for side in sides))
    return Side(
        path=path,
        recordings=recordings,
        step_ns=usual_step(recordings),
        has_device=any(side.has_device for side in sides),
        circumstances=_join_circumstances([side.circumstances for side in sides]),
        figures=_JoinedFigures(sides),
    )


class _JoinedFigures:
    """``side.Figures`` of several sides: what is per step is the mean over the steps of all."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self._figures = [side.figures for side in sides]
        self._recordings = tuple(chain.from_iterable(side.recordings for side in sides))

    @property
    def operator_rows(self) -> pl.DataFrame:
        """As in ``side.Figures``."""
        return self._mean_rows([figures.operator_rows for figures in self._figures], ("name",))

    @property
    def shape_rows(self) -> pl.DataFrame | None:
        """As in ``side.Figures``."""
        frames = [rows for figures in self._figures if (rows := figures.shape_rows) is not None]
        return self._mean_rows(frames, ("name", "input_shapes")) if len(frames) == len(self._figures) else None

    @property
    def task_rows(self) -> pl.DataFrame:
        """As in ``side.Figures``."""
        return self._mean_rows([figures.task_rows for figures in self._figures], ("name",))

    @property
    def call_paths(self) -> CallPaths:
        """As in ``side.Figures``."""
        return join_paths([figures.call_paths for figures in self._figures])

    @property
    def memory_peaks(self) -> list[int | None]:
        """As in ``side.Figures``."""
        return list(chain.from_iterable(figures.memory_peaks for figures in self._figures))

    @property
    def held_memory(self) -> list[pl.DataFrame | None]:
        """As in ``side.Figures``."""
        return list(chain.from_iterable(figures.held_memory for figures in self._figures))

    @property
    def cause_source(self) -> JoinedSource | None:
        """As in ``side.Figures``."""
        sources = [source for figures in self._figures if (source := figures.cause_source) is not None]
        return JoinedSource(sources, self._recordings) if len(sources) == len(self._figures) else None

    def sample_times(self, time: str, name: str) -> list[Sample]:
        """As in ``side.Figures``."""
        return list(chain.from_iterable(figures.sample_times(time, name) for figures in self._figures))

    def all_samples(self, time: str) -> list[Mapping[str, Sample] | None]:
        """As in ``side.Figures``."""
        return list(chain.from_iterable(figures.all_samples(time) for figures in self._figures))

    def _mean_rows(self, frames: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
        steps = [figures.call_paths.steps for figures in self._figures]
        sums = pl.concat(frame.with_columns(pl.exclude(keys) * count) for frame, count in zip(frames, steps, strict=True))
        # in one order, in which numbers add up to the same last digit each time
        return sums.group_by(keys, maintain_order=True).agg(pl.exclude(keys).sum()).with_columns(pl.exclude(keys) / sum(steps))


def _join_circumstances(sides: Sequence[Circumstances]) -> Circumstances:
    return Circumstances(
        ranks=sides[0].ranks,
        begin_ns=min((side.begin_ns for side in sides if side.begin_ns), default=0),
        identities=tuple(chain.from_iterable(side.identities for side in sides)),
        devices=_all_texts(side.devices for side in sides),
        machine=_join_texts([side.machine for side in sides]),
        options=_join_texts([side.options for side in sides]),
        recorded_calls=sum(side.recorded_calls for side in sides) / len(sides),
        recording_ns=sum(side.recording_ns for side in sides) / len(sides),
        clock_mhz={
            name: tuple(chain.from_iterable(side.clock_mhz.get(name, ()) for side in sides))
            for name in dict.fromkeys(chain.from_iterable(side.clock_mhz for side in sides))
        },
        steps_ns=tuple(chain.from_iterable(side.steps_ns for side in sides)),
        waited_share=max(side.waited_share for side in sides),
        doubtful_steps=tuple(chain.from_iterable(side.doubtful_steps for side in sides)),
        problems=tuple(chain.from_iterable(side.problems for side in sides)),
    )


def _join_texts(values: Sequence[Mapping[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    keys = dict.fromkeys(chain.from_iterable(values))
    return {key: _all_texts(of_side.get(key, ()) for of_side in values) for key in keys}


def _all_texts(texts: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(sorted(set(chain.from_iterable(texts))))
