"""Samples of counters in a profiler database: memory, frequency, bandwidth of the device and its connections.

A table has a row per moment, device and sampled unit, with several values; ``counters`` has one value per row. Names and
units of the counters are those of CANN's timeline (``HBM 0/Read``, MB/s of 2**20 bytes).
"""

from __future__ import annotations

import polars as pl

from steplens.formats.ascend_database import MODULES
from steplens.formats.ascend_samples import NUMBER, OPTIONAL_NUMBER, SAMPLES
from steplens.formats.ascend_terms import MODULE_MEMORY
from steplens.writers.common.output import Output
from steplens.writers.database.database_file import DatabaseFile
from steplens.writers.tables.npu_module_mem import module_memory

#: in the order in which their texts get ids
_TABLES = (
    "AICORE_FREQ", "NPU_MEM", "HBM", "DDR", "LLC", "ACC_PMU", "SOC_BANDWIDTH_LEVEL", "HCCS", "NIC", "ROCE", "PCIE",
    "SAMPLE_PMU_TIMELINE", "CPU_USAGE", "HOST_MEM_USAGE", "HOST_DISK_USAGE", "HOST_NETWORK_USAGE",
)  # fmt: skip


def write_samples(file: DatabaseFile, output: Output) -> dict[str, dict[str, int]]:
    """The tables of samples, as far as the trace has their groups.

    Returns:
        what the modules' memory adds to the enumerations: table -> name -> number.
    """
    groups = output.trace.required("counters").select(pl.col("group").cast(pl.String).unique()).collect()["group"].to_list()
    for table in _TABLES:
        if SAMPLES[table].group in groups:
            _write_sample_table(file, output, table)
    return {"ENUM_MODULE": _write_module_memory(file, output)} if MODULE_MEMORY in groups else {}


def _write_sample_table(file: DatabaseFile, output: Output, table: str) -> None:
    samples = SAMPLES[table]
    rows = (
        output.trace.required("counters")
        .filter((pl.col("group").cast(pl.String) == samples.group) & pl.col("value").is_finite())
        .select(
            timestampNs="time_ns", deviceId=pl.col("device").fill_null(0), name=pl.col("name").cast(pl.String), sample="value"
        )
        .collect()
    )
    names = rows.select(pl.col("name").unique(maintain_order=True)).drop_nulls().with_row_index("order")
    groups = {column: pl.col("name").str.extract_groups(samples.pattern(column)) for column in samples.values}
    matches = [names.with_columns(column=pl.lit(column), parts=part).unnest("parts") for column, part in groups.items()]
    parts = pl.concat(matches).drop_nulls("value").sort("order").drop("order", "value")
    if parts.is_empty():
        return
    for key, kind in samples.keys.items():
        is_number = kind in (NUMBER, OPTIONAL_NUMBER)
        number = parts[key].cast(pl.Int64, strict=False) if is_number else file.text_ids(parts[key].str.to_lowercase())
        parts = parts.with_columns(number.alias(key))
    moment = ["timestampNs", "deviceId", *samples.keys]
    # the n-th value of a moment belongs to its n-th row
    values = rows.join(parts, on="name", how="inner", maintain_order="left").with_columns(
        nth=pl.int_range(pl.len()).over([*moment, "column"])
    )
    frame = values.select(*moment, "nth").unique(maintain_order=True)
    for column, (_, _, factor) in samples.values.items():
        of_column = values.filter(pl.col("column") == column).select(*moment, "nth", (pl.col("sample") * factor).alias(column))
        frame = frame.join(of_column, on=[*moment, "nth"], how="left", maintain_order="left", nulls_equal=True)
    scaled_columns = [column for column, (_, _, factor) in samples.values.items() if factor != 1.0]
    file.frame(table, frame.with_columns(pl.col(scaled_columns).round()))


def _write_module_memory(file: DatabaseFile, output: Output) -> dict[str, int]:
    """NPU_MODULE_MEM; returns the numbers of modules that the layout does not know."""
    rows = module_memory(output)
    numbers = {name: number for number, name in enumerate(MODULES)}
    unknown = [name for name in rows["name"].cast(pl.String).unique(maintain_order=True).drop_nulls() if name not in numbers]
    added = {name: len(MODULES) + number for number, name in enumerate(unknown)}
    rows = rows.select(
        moduleId=pl.col("name").cast(pl.String).replace_strict({**numbers, **added}, default=None, return_dtype=pl.Int64),
        timestampNs="time_ns",
        totalReserved=pl.col("bytes").round(),
        deviceId="device",
    )
    file.frame("NPU_MODULE_MEM", rows)
    return added
