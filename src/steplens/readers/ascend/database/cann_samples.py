"""What CANN's databases sample: counters of the device and the host, and the memory of its own allocators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from steplens.readers.ascend.database.cann_layout import Enums, Texts, in_time, thread_of
from steplens.readers.common.sqlite_file import SqliteFile
from steplens.trace.health import COUNTERS, MEMORY, HealthLog
from steplens.trace.schema import ALLOCATE, FREE, NAME

#: what CANN's text files prefix the names of its own allocations with
CANN_PREFIX = "cann::"
_NPU = "NPU"
_APPLICATION = "APP"
#: whose allocations these are where the file does not say
_GRAPH_ENGINE = "GE"
_COMPONENT = "^[A-Z][A-Z0-9_+]*$"
_MIB = float(1 << 20)
_KIB = 1024.0
#: of levels and of values whose unit the source does not say
_NO_UNIT = ""

_TEXT, _MODULE, _NUMBER = "text", "module", "number"


@dataclass(frozen=True)
class _Samples:
    """How a table of samples becomes ``counters``.

    Attributes:
        group: what is sampled, as the timeline calls it.
        values: column -> name of the counter (with keys in braces), unit, and what a value is divided by for it.
        keys: columns that tell counters apart -> whether they hold ids of texts, of modules, or numbers.
    """

    group: str
    values: Mapping[str, tuple[str, str, float]]
    keys: Mapping[str, str] = field(default_factory=dict)


_NETWORK_VALUES = [
    "bandwidth",
    *(f"{way}{what}" for way in ("rx", "tx") for what in ("PacketRate", "ByteRate", "Packets", "Bytes", "Errors", "Dropped")),
]
_PCIE_VALUES = [
    f"{kind}{value}"
    for kind in (*(f"{way}{what}" for way in ("tx", "rx") for what in ("Post", "Nonpost", "Cpl")), "txNonpostLatency")
    for value in ("Min", "Max", "Avg")
]

#: names, units and sizes of MB and KB are those of the timeline that CANN exports as text
_TABLES = {
    "HBM": _Samples("HBM", {"bandwidth": ("HBM {hbmId}/{type}", "MB/s", _MIB)}, {"hbmId": _NUMBER, "type": _TEXT}),
    "DDR": _Samples("DDR", {"read": ("DDR/Read", "MB/s", _MIB), "write": ("DDR/Write", "MB/s", _MIB)}),
    "LLC": _Samples(
        "LLC",
        {"throughput": ("LLC {llcId} {mode}/Throughput", "MB/s", _MIB), "hitRate": ("LLC {llcId} {mode}/Hit Rate", "%", 1.0)},
        {"llcId": _NUMBER, "mode": _TEXT},
    ),
    "NPU_MEM": _Samples("NPU MEM", {"ddr": ("{type}/DDR", "KB", _KIB), "hbm": ("{type}/HBM", "KB", _KIB)}, {"type": _TEXT}),
    "NPU_MODULE_MEM": _Samples("npu_module_mem", {"totalReserved": ("{moduleId}", "B", 1.0)}, {"moduleId": _MODULE}),
    "AICORE_FREQ": _Samples("AI Core Freq", {"freq": ("AI Core Freq", "MHz", 1.0)}),
    "ACC_PMU": _Samples(
        "Acc PMU",
        {
            "readBwLevel": ("read_bandwidth {accId}", _NO_UNIT, 1.0),
            "writeBwLevel": ("write_band_width {accId}", _NO_UNIT, 1.0),
            "readOstLevel": ("read_ost {accId}", _NO_UNIT, 1.0),
            "writeOstLevel": ("write_ost {accId}", _NO_UNIT, 1.0),
        },
        {"accId": _NUMBER},
    ),
    "SOC_BANDWIDTH_LEVEL": _Samples(
        "Stars Soc Info",
        {"l2BufferBwLevel": ("L2 Buffer Bw Level", _NO_UNIT, 1.0), "mataBwLevel": ("Mata Bw Level", _NO_UNIT, 1.0)},
    ),
    "QOS": _Samples("QoS", {"bandwidth": ("QoS {eventName}", _NO_UNIT, 1.0)}, {"eventName": _TEXT}),
    "HCCS": _Samples("HCCS", {"txThroughput": ("HCCS/Tx", "MB/s", _MIB), "rxThroughput": ("HCCS/Rx", "MB/s", _MIB)}),
    "NIC": _Samples("NIC", {name: ("Port {funcId}/" + name, _NO_UNIT, 1.0) for name in _NETWORK_VALUES}, {"funcId": _NUMBER}),
    "ROCE": _Samples("RoCE", {name: ("Port {funcId}/" + name, _NO_UNIT, 1.0) for name in _NETWORK_VALUES}, {"funcId": _NUMBER}),
    "PCIE": _Samples("PCIe", {name: (name, _NO_UNIT, 1.0) for name in _PCIE_VALUES}),
    "SAMPLE_PMU_TIMELINE": _Samples(
        "AI Core Utilization",
        {
            "usage": ("{coreType} {coreId}/usage", "%", 1.0),
            "freq": ("{coreType} {coreId}/freq", "MHz", 1.0),
            "totalCycle": ("{coreType} {coreId}/totalCycle", "cycles", 1.0),
        },
        {"coreId": _NUMBER, "coreType": _TEXT},
    ),
    "CPU_USAGE": _Samples("CPU Usage", {"usage": ("CPU {cpuId}", "%", 1.0)}, {"cpuId": _NUMBER}),
    "HOST_MEM_USAGE": _Samples("Memory Usage", {"usage": ("Memory Usage", "%", 1.0)}),
    "HOST_DISK_USAGE": _Samples(
        "Disk Usage",
        {"readRate": ("Disk/Read", _NO_UNIT, 1.0), "writeRate": ("Disk/Write", _NO_UNIT, 1.0), "usage": ("Disk Usage", "%", 1.0)},
    ),
    "HOST_NETWORK_USAGE": _Samples(
        "Network Usage", {"usage": ("Network Usage", "%", 1.0), "speed": ("Network/Speed", _NO_UNIT, 1.0)}
    ),
}

#: every table that is read here
TABLES = (*_TABLES, "NPU_OP_MEM")


def read(database: SqliteFile, texts: Texts, enums: Enums, health: HealthLog) -> dict[str, pl.DataFrame]:
    """``counters``, ``memory`` and ``allocations`` of the device half of a database; tables may be without rows."""
    counters = [_counters(database, table, samples, texts, enums, health) for table, samples in _TABLES.items()]
    events = _events(database, texts, health)
    return {
        "counters": pl.concat([frame for frame in counters if frame.height] or [pl.DataFrame()]),
        "memory": pl.concat(
            [frame for frame in (events, _application(database, texts, health)) if frame.height] or [events], how="diagonal"
        ),
        "allocations": _allocations(events),
    }


def _counters(database: SqliteFile, table: str, samples: _Samples, texts: Texts, enums: Enums, health: HealthLog) -> pl.DataFrame:
    numbers = {"timestampNs": pl.Int64(), "deviceId": pl.Int64(), **dict.fromkeys(samples.keys, pl.Int64())}
    rows = database.read(table, {**numbers, **dict.fromkeys(samples.values, pl.Float64())})
    if "timestampNs" not in rows.columns or not rows.height:
        return pl.DataFrame()
    missing = [pl.lit(None, dtype=pl.Int64).alias(column) for column in numbers if column not in rows.columns]
    rows = in_time(rows.with_columns(*missing), ["timestampNs"], table, health, COUNTERS)
    labels = {key: _label(rows[key], kind, texts, enums) for key, kind in samples.keys.items()}
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


def _label(column: pl.Series, kind: str, texts: Texts, enums: Enums) -> pl.Series:
    """What tells a counter apart, as text; ids of texts that are numbers themselves stay numbers."""
    if kind == _NUMBER:
        label: pl.Series = column.cast(pl.String)
    elif kind == _MODULE:
        label = enums.of("ENUM_MODULE", column).cast(pl.String)
    else:
        known = {"app": _APPLICATION, "device": "Device", "read": "Read", "write": "Write"}
        label = pl.select(pl.coalesce(texts.of(column).cast(pl.String).replace(known), column.cast(pl.String))).to_series()
    named: pl.Series = label.fill_null("")
    return named


def _events(database: SqliteFile, texts: Texts, health: HealthLog) -> pl.DataFrame:
    """``memory`` rows of CANN's allocators (GE ...), and ``name`` and ``order`` for pairing."""
    columns = (
        "operatorName",
        "addr",
        "type",
        "size",
        "timestampNs",
        "globalTid",
        "totalAllocate",
        "totalReserve",
        "component",
        "deviceId",
    )
    rows = database.read("NPU_OP_MEM", dict.fromkeys(columns, pl.Int64()))
    if not {"timestampNs", "size", "type"} <= set(rows.columns):
        return pl.DataFrame()
    missing = [pl.lit(None, dtype=pl.Int64).alias(column) for column in columns if column not in rows.columns]
    rows = in_time(rows.with_columns(*missing), ["timestampNs"], "NPU_OP_MEM", health, MEMORY)
    released = pl.col("type").is_in(texts.ids_of("release", "free")) | (pl.col("size") < 0)
    component = texts.of(rows["component"]).cast(pl.String)
    component = component.set(~component.str.contains(_COMPONENT).fill_null(False), _GRAPH_ENGINE).cast(NAME)
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


def _application(database: SqliteFile, texts: Texts, health: HealthLog) -> pl.DataFrame:
    """``memory`` rows of the process as a whole: what it has reserved on the device, sampled."""
    rows = database.read("NPU_MEM", dict.fromkeys(("type", "ddr", "hbm", "timestampNs", "deviceId"), pl.Int64()))
    if rows.width < 5:
        return pl.DataFrame()
    return (
        in_time(rows, ["timestampNs"], "NPU_MEM", health, MEMORY)
        .filter(pl.col("type").is_in(texts.ids_of("app", "APP")))
        .select(
            time_ns="timestampNs",
            reserved=pl.col("ddr").fill_null(0) + pl.col("hbm").fill_null(0),
            device_type=pl.lit(_NPU, dtype=NAME),
            device=pl.col("deviceId").cast(pl.Int32, strict=False),
            pid=pl.lit(None, dtype=pl.Int64),
            tid=pl.lit(None, dtype=pl.Int64),
            component=pl.lit(_APPLICATION, dtype=NAME),
        )
    )


def _allocations(events: pl.DataFrame) -> pl.DataFrame:
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
            name=(pl.lit(CANN_PREFIX) + pl.col("name").cast(pl.String).fill_null("")).cast(NAME),
            bytes="bytes",
            allocation_ns="time_ns",
            release_ns="release_time_ns",
            allocation_allocated="allocated",
            allocation_reserved="reserved",
            release_allocated="release_allocated",
            release_reserved="release_reserved",
            device_type="device_type",
            device="device",
            component="component",
        )
    )
