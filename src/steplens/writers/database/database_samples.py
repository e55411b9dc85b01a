"""Samples of counters in a profiler database: memory, frequency, bandwidth of the device and its connections.

A table has a row per moment, device and sampled unit, with several values; ``counters`` has one value per row. Names and
units of the counters are those of CANN's timeline (``HBM 0/Read``, MB/s of 2**20 bytes).
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from steplens.writers.common.output import MODULE_MEMORY, Output
from steplens.writers.database.database_file import DatabaseFile
from steplens.writers.database.database_layout import MODULES, PROFILER_TABLES, columns
from steplens.writers.tables.npu_module_mem import module_memory

_MIB = float(1 << 20)
_KIB = 1024.0


@dataclass(frozen=True)
class _Samples:
    """How the counters of one group become a table.

    Attributes:
        group: the group.
        pattern: regular expression of a counter's name, its groups named after columns; "value" names which value it is.
        values: the part called "value" -> column, and what its values are multiplied by.
        numbers: columns among the groups of the pattern that hold numbers; the others hold ids of texts in lower case.
    """

    group: str
    pattern: str
    values: dict[str, tuple[str, float]]
    numbers: tuple[str, ...] = ()


_PLAIN = "^(?P<value>.*)$"
_PORT = r"^Port (?P<funcId>\d+)/(?P<value>.*)$"


def _all_values(table: str) -> dict[str, tuple[str, float]]:
    return {name: (name, 1.0) for name in columns(PROFILER_TABLES[table]) if name not in ("deviceId", "timestampNs", "funcId")}


_TABLES = {
    "AICORE_FREQ": _Samples("AI Core Freq", _PLAIN, {"AI Core Freq": ("freq", 1.0)}),
    "NPU_MEM": _Samples("NPU MEM", r"^(?P<type>\w+)/(?P<value>.*)$", {"DDR": ("ddr", _KIB), "HBM": ("hbm", _KIB)}),
    "HBM": _Samples("HBM", r"^HBM (?P<hbmId>\d+)/(?P<type>.*)(?P<value>)$", {"": ("bandwidth", _MIB)}, ("hbmId",)),
    "DDR": _Samples("DDR", r"^(?:DDR/)?(?P<value>.*)$", {"Read": ("read", _MIB), "Write": ("write", _MIB)}),
    "LLC": _Samples(
        "LLC",
        r"^LLC (?P<llcId>\d+) (?P<mode>\w+)/(?P<value>.*)$",
        {"Throughput": ("throughput", _MIB), "Hit Rate": ("hitRate", 1.0)},
        ("llcId",),
    ),
    "ACC_PMU": _Samples(
        "Acc PMU",
        r"^(?P<value>\w+?)(?: (?P<accId>\d+))?$",
        {
            "read_bandwidth": ("readBwLevel", 1.0),
            "write_band_width": ("writeBwLevel", 1.0),
            "read_ost": ("readOstLevel", 1.0),
            "write_ost": ("writeOstLevel", 1.0),
        },
        ("accId",),
    ),
    "SOC_BANDWIDTH_LEVEL": _Samples(
        "Stars Soc Info", _PLAIN, {"L2 Buffer Bw Level": ("l2BufferBwLevel", 1.0), "Mata Bw Level": ("mataBwLevel", 1.0)}
    ),
    "HCCS": _Samples("HCCS", r"^(?:HCCS/)?(?P<value>.*)$", {"Tx": ("txThroughput", _MIB), "Rx": ("rxThroughput", _MIB)}),
    "NIC": _Samples("NIC", _PORT, _all_values("NIC"), ("funcId",)),
    "ROCE": _Samples("RoCE", _PORT, _all_values("ROCE"), ("funcId",)),
    "PCIE": _Samples("PCIe", _PLAIN, _all_values("PCIE")),
    "SAMPLE_PMU_TIMELINE": _Samples(
        "AI Core Utilization",
        r"^(?P<coreType>\w+) (?P<coreId>\d+)/(?P<value>\w+)$",
        {name: (name, 1.0) for name in ("totalCycle", "usage", "freq")},
        ("coreId",),
    ),
    # of the host: the timeline also has the process's share of all processors together, and more than these rates
    "CPU_USAGE": _Samples("CPU Usage", r"^CPU (?P<cpuId>\d+)(?P<value>)$", {"": ("usage", 1.0)}, ("cpuId",)),
    "HOST_MEM_USAGE": _Samples("Memory Usage", _PLAIN, {"Memory Usage": ("usage", 1.0)}),
    "HOST_DISK_USAGE": _Samples(
        "Disk Usage",
        _PLAIN,
        {"Disk/Read": ("readRate", 1.0), "Disk/Write": ("writeRate", 1.0), "Disk Usage": ("usage", 1.0)},
    ),
    "HOST_NETWORK_USAGE": _Samples("Network Usage", _PLAIN, {"Network Usage": ("usage", 1.0), "Network/Speed": ("speed", 1.0)}),
}


def write_samples(file: DatabaseFile, output: Output) -> dict[str, dict[str, int]]:
    """The tables of samples, as far as the trace has their groups.

    Returns:
        what the modules' memory adds to the enumerations: table -> name -> number.
    """
    groups = output.trace.required("counters").select(pl.col("group").cast(pl.String).unique()).collect()["group"].to_list()
    for table, samples in _TABLES.items():
        if samples.group in groups:
            _write(file, output, table, samples)
    return {"ENUM_MODULE": _write_module_memory(file, output)} if MODULE_MEMORY in groups else {}


def _write(file: DatabaseFile, output: Output, table: str, samples: _Samples) -> None:
    rows = (
        output.trace.required("counters")
        .filter((pl.col("group").cast(pl.String) == samples.group) & pl.col("value").is_finite())
        .select(
            timestampNs="time_ns", deviceId=pl.col("device").fill_null(0), name=pl.col("name").cast(pl.String), sample="value"
        )
        .collect()
    )
    names = rows.select(pl.col("name").unique(maintain_order=True)).drop_nulls()
    parts = names.with_columns(parts=pl.col("name").str.extract_groups(samples.pattern)).unnest("parts").drop_nulls("value")
    parts = parts.filter(pl.col("value").is_in(list(samples.values)))
    if parts.is_empty():
        return
    keys = [column for column in parts.columns if column not in ("name", "value")]
    for key in keys:
        number = (
            parts[key].cast(pl.Int64, strict=False) if key in samples.numbers else file.text_ids(parts[key].str.to_lowercase())
        )
        parts = parts.with_columns(number.alias(key))
    moment = ["timestampNs", "deviceId", *keys]
    # the n-th value of a moment belongs to its n-th row
    known = rows.join(parts, on="name", how="inner", maintain_order="left").with_columns(
        nth=pl.int_range(pl.len()).over([*moment, "value"])
    )
    frame = known.select(*moment, "nth").unique(maintain_order=True)
    for value, (column, factor) in samples.values.items():
        own = known.filter(pl.col("value") == value).select(*moment, "nth", (pl.col("sample") * factor).alias(column))
        frame = frame.join(own, on=[*moment, "nth"], how="left", maintain_order="left", nulls_equal=True)
    whole = [column for column, factor in samples.values.values() if factor != 1.0]
    file.frame(table, frame.with_columns(pl.col(whole).round()))


def _write_module_memory(file: DatabaseFile, output: Output) -> dict[str, int]:
    """NPU_MODULE_MEM; returns the numbers of modules that the layout does not know."""
    rows = module_memory(output)
    numbers = {name: number for number, name in enumerate(MODULES)}
    unknown = [name for name in rows["name"].cast(pl.String).unique(maintain_order=True).drop_nulls() if name not in numbers]
    added = {name: len(MODULES) + number for number, name in enumerate(unknown)}
    file.frame(
        "NPU_MODULE_MEM",
        rows.select(
            moduleId=pl.col("name").cast(pl.String).replace_strict({**numbers, **added}, default=None, return_dtype=pl.Int64),
            timestampNs="time_ns",
            totalReserved=pl.col("bytes").round(),
            deviceId="device",
        ),
    )
    return added
