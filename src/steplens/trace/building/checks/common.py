"""What several checks need: the clock's resolution, names by pattern, device tasks, lengths of time as text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from steplens.trace.building.nesting import Int64Array
from steplens.trace.schema import CORE_CPU, KIND_OTHER

#: the linked tables of one trace, every one with all columns of its schema
Tables = Mapping[str, pl.DataFrame]

_SAMPLE = 4096
#: fewer times than this may be multiples of something by chance
_LEAST = 32


def time_resolution(times: pl.Series) -> int:
    """The largest number of ns that all times are apart by multiples of, from an even sample; 1 where they are too few."""
    times = times.drop_nulls() if times.null_count() else times
    if len(times) < _LEAST:
        return 1
    sample = times.to_numpy()[:: max(len(times) // _SAMPLE, 1)]
    return max(int(np.gcd.reduce(sample - sample.min())), 1)


def rows_matching_name(frame: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """The rows whose name matches a regular expression; it is tried once per distinct name."""
    names = frame["name"].unique()
    matching = names.filter(names.cast(pl.String).str.contains(pattern).fill_null(False))
    return frame.filter(pl.col("name").is_in(matching.implode())) if len(matching) else frame.clear()


def device_tasks(tables: Tables) -> pl.DataFrame | None:
    """The tasks of an accelerator; None where the trace has none."""
    kernels = tables.get("kernels")
    if kernels is None:
        return None
    if kernels["core"].n_unique() <= 1:
        # mostly there is one kind, and its first row says it
        return kernels if not kernels.height or kernels["core"][0] != CORE_CPU else None
    cores = kernels["core"].unique().cast(pl.String).fill_null("")
    if CORE_CPU not in cores.to_list():
        return kernels
    tasks = kernels.filter(pl.col("core").cast(pl.String).fill_null("") != CORE_CPU)
    return tasks if tasks.height else None


def launched_tasks(tables: Tables) -> pl.DataFrame | None:
    """The tasks of an accelerator that do the work of a call; not the waits, records and markers between them."""
    tasks = device_tasks(tables)
    if tasks is None:
        return None
    tasks = tasks.filter(pl.col("kind").cast(pl.String).fill_null("") != KIND_OTHER)
    return tasks if tasks.height else None


def to_int64_array(column: pl.Series) -> Int64Array:
    """A column of integers without nulls as an array."""
    array: Int64Array = column.to_numpy()
    return array


_HOUR_NS = 3600e9
_DAY_NS = 24 * _HOUR_NS
_YEAR_NS = 365.25 * _DAY_NS
#: up to which length, by what it is divided, and what that is
_UNITS = (
    (1e3, 1.0, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms"), (_HOUR_NS, 1e9, "s"),
    (3 * _DAY_NS, _HOUR_NS, "h"), (2 * _YEAR_NS, _DAY_NS, "days"),
)  # fmt: skip


def format_duration(ns: float) -> str:
    """A length of time for a message: ``3.2 us``, ``5 ms``; of clocks that count from other moments ``53.6 years``."""
    for limit, divisor, unit in _UNITS:
        if abs(ns) < limit:
            return f"{ns / divisor:.3g} {unit}"
    return f"{ns / _YEAR_NS:.3g} years"
