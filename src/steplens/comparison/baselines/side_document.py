"""A side of a comparison as the document of a baseline, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from steplens.comparison.baselines.cause_sides import KeptSource, describe_causes
from steplens.comparison.baselines.document import (
    CircumstancesDocument,
    HeldDocument,
    Items,
    Paths,
    RecordingDocument,
    Samples,
    SideDocument,
)
from steplens.comparison.call_tree import CALLS, SUMS, CallPaths
from steplens.comparison.circumstances import Circumstances
from steplens.comparison.held_memory import PEAK
from steplens.comparison.item_times import DEVICE, SELF, TASK
from steplens.comparison.noise import Sample
from steplens.comparison.recordings import FIGURES, Recording, usual_step
from steplens.comparison.side import Side

#: columns of steps and of usual steps
_KEYS = {"window": pl.Int64(), "step": pl.Int64()}
_STEPS = {**_KEYS, "start_ns": pl.Int64(), "step_time_ns": pl.Float64()}
_USUAL = {**_KEYS, "step_time_ns": pl.Float64(), **dict.fromkeys(FIGURES, pl.Float64())}
#: significant digits of figures, more than any clock has of a step
_DIGITS = 12


def describe_side(side: Side) -> SideDocument:
    """A side with all of its figures; of the same recordings it is the same each time."""
    figures = side.figures
    paths, shapes = figures.call_paths, figures.shape_rows
    kinds = (SELF, DEVICE, TASK) if side.has_device else (SELF, DEVICE)
    samples = {kind: figures.all_samples(kind) for kind in kinds}
    recordings = [
        RecordingDocument(
            ranks=recording.ranks,
            waited_share=recording.waited_share,
            memory_peak=peak,
            steps=_to_columns(recording.steps, _STEPS),
            usual=_to_columns(recording.usual, _USUAL),
            samples={
                kind: _describe_samples(by_name)
                for kind, of_recordings in samples.items()
                if (by_name := of_recordings[number]) is not None
            },
            held=None if held is None else HeldDocument(**_to_columns(held, PEAK)),
        )
        for number, (recording, peak, held) in enumerate(
            zip(side.recordings, figures.memory_peaks, figures.held_memory, strict=True)
        )
    ]
    source = figures.cause_source
    return SideDocument(
        has_device=side.has_device,
        circumstances=_describe_circumstances(side.circumstances),
        recordings=recordings,
        steps=paths.steps,
        kernel_ns=paths.kernel_ns,
        operators=_describe_items(figures.operator_rows, "self_ns", paths.steps),
        shapes=None if shapes is None else _describe_items(shapes, "self_ns", paths.steps),
        tasks=_describe_items(figures.task_rows, "total_ns", paths.steps),
        paths=Paths(**_add_up(paths.calls.select(*CALLS), SUMS, paths.steps).to_dict(as_series=False)),
        causes=None if source is None else describe_causes(source),
    )


def read_side(document: SideDocument, path: Path) -> Side:
    """The side that a document describes.

    Args:
        document: whose types and bounds were checked.
        path: of its file.

    Raises:
        ValueError: it contradicts itself.
    """
    recordings = tuple(
        Recording(
            steps=_from_columns(recording.steps, _STEPS),
            usual=_from_columns(recording.usual, _USUAL),
            ranks=recording.ranks,
            waited_share=recording.waited_share,
        )
        for recording in document.recordings
    )
    for recording in recordings:
        steps_ns = recording.steps["step_time_ns"]
        if not steps_ns.len() or steps_ns.null_count() or not (steps_ns > 0).all():
            raise ValueError("a recording has no steps, or one that took no time")
    return Side(
        path=path,
        recordings=recordings,
        step_ns=usual_step(recordings),
        has_device=document.has_device,
        circumstances=_read_circumstances(document.circumstances),
        figures=KeptFigures(document, recordings),
    )


class KeptFigures:
    """``side.Figures`` of a document.

    Args:
        document: whose types and bounds were checked.
        recordings: its recordings.

    Raises:
        ValueError: it contradicts itself.
    """

    def __init__(self, document: SideDocument, recordings: Sequence[Recording]) -> None:
        self.operator_rows = _read_items(document.operators, "self_ns", document.steps)
        self.shape_rows = None if document.shapes is None else _read_items(document.shapes, "self_ns", document.steps)
        self.task_rows = _read_items(document.tasks, "total_ns", document.steps)
        self.call_paths = CallPaths(_read_paths(document.paths, document.steps), document.steps, document.kernel_ns)
        self.memory_peaks = tuple(recording.memory_peak for recording in document.recordings)
        self.held_memory = tuple(_read_held(recording.held) for recording in document.recordings)
        self.cause_source = None if document.causes is None else KeptSource(document.causes, recordings)
        self._recordings = recordings
        self._samples = [
            {kind: _read_samples(samples, recording) for kind, samples in described.samples.items()}
            for described, recording in zip(document.recordings, recordings, strict=True)
        ]

    def sample_times(self, time: str, name: str) -> tuple[Sample, ...]:
        """As in ``side.Figures``."""
        of_recordings = zip(self._recordings, self.all_samples(time), strict=True)
        return tuple(
            samples.get(name) or _make_sample(recording, 0.0, 0.0, 0.0, 1)
            for recording, samples in of_recordings
            if samples is not None
        )

    def all_samples(self, time: str) -> list[Mapping[str, Sample] | None]:
        """As in ``side.Figures``."""
        return [by_kind.get(time) for by_kind in self._samples]


def _read_held(held: HeldDocument | None) -> pl.DataFrame | None:
    return None if held is None else _from_columns({name: getattr(held, name) for name in PEAK}, PEAK)


def _describe_samples(samples: Mapping[str, Sample]) -> Samples:
    values = samples.values()
    return Samples(
        name=list(samples),
        usual=[_round_number(sample.usual) for sample in values],
        sampling_variance=[_round_number(sample.sampling_variance) for sample in values],
        spread=[_round_number(sample.spread) for sample in values],
        block=[sample.block for sample in values],
    )


def _read_samples(samples: Samples, recording: Recording) -> Mapping[str, Sample]:
    columns = (samples.usual, samples.sampling_variance, samples.spread, samples.block)
    _check_lengths([samples.name, *columns])
    return {
        name: _make_sample(recording, usual, variance, spread, block)
        for name, usual, variance, spread, block in zip(samples.name, *columns, strict=True)
    }


def _make_sample(recording: Recording, usual: float, variance: float, spread: float, block: int) -> Sample:
    return Sample(recording.usual.height, usual, variance, spread, block, recording.waited_share or 0.0)


def _describe_items(rows: pl.DataFrame, time: str, steps: int) -> Items:
    keys = [name for name in ("name", "input_shapes") if name in rows.columns]
    ordered = _add_up(rows.sort(keys), ("calls", time), steps)
    shapes = ordered["input_shapes"].to_list() if "input_shapes" in keys else None
    return Items(ordered["name"].to_list(), ordered["calls"].to_list(), ordered[time].to_list(), shapes)


def _read_items(items: Items, time: str, steps: int) -> pl.DataFrame:
    columns: dict[str, Any] = {"name": items.name, "calls": items.calls, time: items.time_ns}
    columns |= {} if items.input_shapes is None else {"input_shapes": items.input_shapes}
    types = {"name": pl.String(), "input_shapes": pl.String(), "calls": pl.Float64(), time: pl.Float64()}
    rows = _from_columns(columns, {name: dtype for name, dtype in types.items() if name in columns})
    return rows.with_columns(pl.col("calls", time) / steps)


def _add_up(rows: pl.DataFrame, means: Sequence[str], steps: int) -> pl.DataFrame:
    """Rows with sums over all steps in place of means: of calls and of ns, so that they are whole numbers."""
    return rows.with_columns((pl.col(means) * steps).round().cast(pl.Int64))


def _read_paths(paths: Paths, steps: int) -> pl.DataFrame:
    frame = _from_columns({name: getattr(paths, name) for name in CALLS}, CALLS).with_columns(pl.col(SUMS) / steps)
    numbered = frame.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    outer = numbered.select("row", outer_depth="depth")
    joined = numbered.filter(pl.col("parent") >= 0).join(outer, left_on="parent", right_on="row", how="left")
    is_below = (pl.col("parent") < pl.col("row")) & (pl.col("outer_depth") < pl.col("depth"))
    if (frame["parent"] < -1).any() or not joined.select(is_below.fill_null(False).all()).item():
        raise ValueError("a call lies in none that is there")
    return frame


def _describe_circumstances(circumstances: Circumstances) -> CircumstancesDocument:
    return CircumstancesDocument(
        ranks=list(circumstances.ranks),
        begin_ns=circumstances.begin_ns,
        identities=sorted(circumstances.identities),
        devices=_plain_texts(circumstances.devices),
        machine={key: _plain_texts(values) for key, values in circumstances.machine.items()},
        options={key: _plain_texts(values) for key, values in circumstances.options.items()},
        steps_ns=[_round_number(value) for value in circumstances.steps_ns],
        waited_share=circumstances.waited_share,
        doubtful_steps=_plain_texts(circumstances.doubtful_steps),
        problems=[(check, message) for check, message in circumstances.problems],
        recorded_calls=_round_number(circumstances.recorded_calls),
        recording_ns=_round_number(circumstances.recording_ns),
        clock_mhz={name: [_round_number(mhz) for mhz in rates] for name, rates in circumstances.clock_mhz.items()},
    )


def _read_circumstances(document: CircumstancesDocument) -> Circumstances:
    return Circumstances(
        ranks=tuple(document.ranks),
        begin_ns=document.begin_ns,
        identities=tuple(document.identities),
        devices=tuple(document.devices),
        machine={key: tuple(values) for key, values in document.machine.items()},
        options={key: tuple(values) for key, values in document.options.items()},
        recorded_calls=document.recorded_calls,
        recording_ns=document.recording_ns,
        clock_mhz={name: tuple(rates) for name, rates in document.clock_mhz.items() if rates and min(rates) > 0},
        steps_ns=tuple(document.steps_ns),
        waited_share=document.waited_share,
        doubtful_steps=tuple(document.doubtful_steps),
        problems=tuple(document.problems),
    )


def _plain_texts(texts: Sequence[str]) -> list[str]:
    """Texts that JSON can hold: what was recorded of a machine may hold halves of surrogate pairs."""
    return [text.encode("utf-8", "replace").decode() for text in texts]


def _to_columns(frame: pl.DataFrame, types: Mapping[str, pl.DataType]) -> dict[str, list[Any]]:
    columns = frame.select(pl.col(name).cast(dtype) for name, dtype in types.items())
    return {
        name: _round_numbers(columns[name]) if dtype == pl.Float64 else columns[name].to_list() for name, dtype in types.items()
    }


def _from_columns(columns: Mapping[str, Sequence[Any]], types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    if missing := [name for name in types if name not in columns]:
        raise ValueError(f"there is no {missing[0]}")
    _check_lengths([columns[name] for name in types])
    series = []
    for name, dtype in types.items():
        values = columns[name]
        if dtype == pl.Int64 and not all(value is None or float(value).is_integer() for value in values):
            raise ValueError(f"{name} is no whole number")
        series.append(pl.Series(name, values, dtype, strict=False))
    return pl.DataFrame(series)


def _check_lengths(columns: Sequence[Sequence[Any]]) -> None:
    if len({len(column) for column in columns}) > 1:
        raise ValueError("columns of a table have other lengths")


def _round_numbers(values: pl.Series) -> list[Any]:
    return [None if value is None else _round_number(value) for value in values.to_list()]


def _round_number(value: float) -> float:
    """A number with few digits; a whole one without a fraction, as JSON is shorter then."""
    if isinstance(value, int):
        return value
    shortened = float(f"{value:.{_DIGITS}g}")
    return int(shortened) if shortened.is_integer() and abs(shortened) < 1 << 53 else shortened
