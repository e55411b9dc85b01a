"""What CANN's databases sample: counters of the device and the host, and the memory of its own allocators."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from steplens.formats.ascend_database import PROFILER_TABLES, columns
from steplens.formats.ascend_samples import MODULE, NUMBER, OPTIONAL_NUMBER, SAMPLES, Samples
from steplens.formats.ascend_terms import APP, CANN_PREFIX, GE
from steplens.readers.ascend.database.cann_names import ProfilerDatabase, thread_of
from steplens.readers.common.trace_rows import NO_THREAD, concat_rows
from steplens.trace.health import COUNTERS, MEMORY
from steplens.trace.schema import ALLOCATE, FREE, NAME

_NPU = "NPU"
_COMPONENT = "^[A-Z][A-Z0-9_+]*$"

#: every table that is read here
TABLES = (*SAMPLES, "NPU_OP_MEM")


def read(database: ProfilerDatabase) -> dict[str, pl.DataFrame]:
    """``counters``, ``memory`` and ``allocations`` of the device half of a database; tables may be without rows."""
    counters = concat_rows(*(_read_counters(database, table, samples) for table, samples in SAMPLES.items()))
    events = _allocator_events(database)
    return {
        "counters": counters,
        "memory": concat_rows(events, _process_memory(database)),
        "allocations": _pair_allocations(events),
    }


def _read_counters(database: ProfilerDatabase, table: str, samples: Samples) -> pl.DataFrame:
    numbers = {"timestampNs": pl.Int64(), "deviceId": pl.Int64(), **dict.fromkeys(samples.keys, pl.Int64())}
    rows = database.read(table, {**numbers, **dict.fromkeys(samples.values, pl.Float64())})
    if "timestampNs" not in rows.columns or not rows.height:
        return pl.DataFrame()
    missing = [pl.lit(None, dtype=pl.Int64).alias(column) for column in numbers if column not in rows.columns]
    rows = database.in_time(rows.with_columns(*missing), ["timestampNs"], table, COUNTERS)
    labels = {key: _counter_label(rows[key], kind, database) for key, kind in samples.keys.items()}
    frames = []
    for column, (name, unit, divisor) in samples.values.items():
        if column in rows.columns:
            parts = pl.format(
                name.format(**dict.fromkeys(labels, "{}")), *(pl.lit(labels[key]) for key in _keys_in(name, labels))
            )
            frames.append(
                rows.select(
                    group=pl.lit(samples.group, dtype=NAME),
                    name=parts.cast(NAME),
                    unit=pl.lit(unit or None, dtype=NAME),
                    time_ns="timestampNs",
                    value=pl.col(column) / divisor,
                    device=pl.col("deviceId").cast(pl.Int32, strict=False),
                ).drop_nulls("value")
            )
    return pl.concat(frames) if frames else pl.DataFrame()


def _keys_in(name: str, labels: Mapping[str, pl.Series]) -> list[str]:
    """The keys of a name's template, in order."""
    return sorted((key for key in labels if "{" + key + "}" in name), key=lambda key: name.index("{" + key + "}"))


def _counter_label(column: pl.Series, kind: str, database: ProfilerDatabase) -> pl.Series:
    """What tells a counter apart, as text; ids of texts that are numbers themselves stay numbers."""
    if kind in (NUMBER, OPTIONAL_NUMBER):
        label: pl.Series = column.cast(pl.String)
    elif kind == MODULE:
        label = database.enums.of("ENUM_MODULE", column).cast(pl.String)
    else:
        label_of = {"app": APP, "device": "Device", "read": "Read", "write": "Write"}
        text = database.texts.of(column).cast(pl.String).replace(label_of)
        label = pl.select(pl.coalesce(text, column.cast(pl.String))).to_series()
    filled: pl.Series = label.fill_null("")
    return filled


def _allocator_events(database: ProfilerDatabase) -> pl.DataFrame:
    """``memory`` rows of CANN's allocators (GE ...), and ``name`` and ``order`` for pairing."""
    names, texts = columns(PROFILER_TABLES["NPU_OP_MEM"]), database.texts
    rows = database.read("NPU_OP_MEM", dict.fromkeys(names, pl.Int64()))
    if not {"timestampNs", "size", "type"} <= set(rows.columns):
        return pl.DataFrame()
    missing = [pl.lit(None, dtype=pl.Int64).alias(name) for name in names if name not in rows.columns]
    rows = database.in_time(rows.with_columns(*missing), ["timestampNs"], "NPU_OP_MEM", MEMORY)
    released = pl.col("type").is_in(texts.ids_of("release", "free")) | (pl.col("size") < 0)
    component = texts.of(rows["component"]).cast(pl.String)
    component = component.set(~component.str.contains(_COMPONENT).fill_null(False), GE).cast(NAME)
    return rows.with_columns(name=texts.of(rows["operatorName"]), component=component).select(
        name="name",
        time_ns="timestampNs",
        event=pl.when(released).then(pl.lit(FREE)).otherwise(pl.lit(ALLOCATE)).cast(NAME),
        address="addr",
        bytes=pl.when(released).then(-pl.col("size").abs()).otherwise(pl.col("size").abs()),
        allocated="totalAllocate",
        reserved="totalReserve",
        device_type=pl.lit(_NPU, dtype=NAME),
        device=pl.col("deviceId").cast(pl.Int32, strict=False),
        **thread_of("globalTid"),
        component="component",
    )


def _process_memory(database: ProfilerDatabase) -> pl.DataFrame:
    """``memory`` rows of the process as a whole: what it has reserved on the device, sampled."""
    rows = database.read("NPU_MEM", dict.fromkeys(columns(PROFILER_TABLES["NPU_MEM"]), pl.Int64()))
    if rows.width < 5:
        return pl.DataFrame()
    return (
        database.in_time(rows, ["timestampNs"], "NPU_MEM", MEMORY)
        .filter(pl.col("type").is_in(database.texts.ids_of("app", APP)))
        .select(
            time_ns="timestampNs",
            reserved=pl.col("ddr").fill_null(0) + pl.col("hbm").fill_null(0),
            **NO_THREAD,
            device_type=pl.lit(_NPU, dtype=NAME),
            device=pl.col("deviceId").cast(pl.Int32, strict=False),
            component=pl.lit(APP, dtype=NAME),
        )
    )


def _pair_allocations(events: pl.DataFrame) -> pl.DataFrame:
    """Each allocation of CANN's allocators with the next event of its operator and address, if that is its release."""
    if not events.height:
        return pl.DataFrame()
    space = ["name", "address", "device"]
    ordered = events.sort("time_ns", maintain_order=True)
    released = pl.col("bytes").shift(-1).over(space) < 0
    after = {
        column: pl.when(released).then(pl.col(column).shift(-1).over(space)) for column in ("time_ns", "allocated", "reserved")
    }
    return (
        ordered.with_columns(**{f"release_{column}": value for column, value in after.items()})
        .filter(pl.col("bytes") > 0)
        .select(
            *("bytes", "release_allocated", "release_reserved", "device_type", "device", "component"),
            name=(pl.lit(CANN_PREFIX) + pl.col("name").cast(pl.String).fill_null("")).cast(NAME),
            allocation_ns="time_ns",
            release_ns="release_time_ns",
            allocation_allocated="allocated",
            allocation_reserved="reserved",
        )
    )
