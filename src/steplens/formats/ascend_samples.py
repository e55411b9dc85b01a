"""Samples of counters in Ascend's databases: which table holds what, and what timelines call each of its values.

A table has a row per moment, device and sampled unit, with several values; a counter of a timeline has one value per event.
Units are those of the timeline that CANN exports (``HBM 0/Read``, MB/s of 2**20 bytes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steplens.formats.ascend_database import NETWORK_VALUES, PCIE_VALUES
from steplens.formats.ascend_terms import MODULE_MEMORY

_MIB = float(1 << 20)
_KIB = 1024.0

#: what a column holds that tells counters apart: numbers (one may be missing in names), ids of texts, or modules
NUMBER, OPTIONAL_NUMBER, WORD, TEXT, MODULE = "number", "optional number", "word", "text", "module"
#: regular expressions of their part of a counter's name
_PATTERNS = {NUMBER: r"(?P<{}>\d+)", WORD: r"(?P<{}>\w+)", TEXT: r"(?P<{}>.*)", MODULE: r"(?P<{}>\w+)"}


@dataclass(frozen=True)
class Samples:
    """What a table samples.

    Attributes:
        group: what is sampled, as the timeline calls it.
        values: column -> name of the counter (with keys in braces), unit ("" where the source does not say it), and what a value
            is divided by for it.
        keys: columns that tell counters apart -> what they hold.
    """

    group: str
    values: Mapping[str, tuple[str, str, float]]
    keys: Mapping[str, str] = field(default_factory=dict)

    def pattern(self, column: str) -> str:
        """A regular expression of the names of a column's counters, its groups named after keys; ``value`` is empty.

        Other timelines leave out the group that some names repeat (``DDR/Read``).
        """
        name = self.values[column][0]
        if name.startswith(f"{self.group}/"):
            name = f"(?:{self.group}/)?{name.removeprefix(f'{self.group}/')}"
        for key, kind in self.keys.items():
            if kind == OPTIONAL_NUMBER:
                name = name.replace(f" {{{key}}}", rf"(?: (?P<{key}>\d+))?")
            else:
                name = name.replace(f"{{{key}}}", _PATTERNS[kind].format(key))
        return f"^{name}(?P<value>)$"


_PORTS = {name: (f"Port {{funcId}}/{name}", "", 1.0) for name in NETWORK_VALUES}

SAMPLES = {
    "HBM": Samples("HBM", {"bandwidth": ("HBM {hbmId}/{type}", "MB/s", _MIB)}, {"hbmId": NUMBER, "type": TEXT}),
    "DDR": Samples("DDR", {"read": ("DDR/Read", "MB/s", _MIB), "write": ("DDR/Write", "MB/s", _MIB)}),
    "LLC": Samples(
        "LLC",
        {"throughput": ("LLC {llcId} {mode}/Throughput", "MB/s", _MIB), "hitRate": ("LLC {llcId} {mode}/Hit Rate", "%", 1.0)},
        {"llcId": NUMBER, "mode": WORD},
    ),
    "NPU_MEM": Samples("NPU MEM", {"ddr": ("{type}/DDR", "KB", _KIB), "hbm": ("{type}/HBM", "KB", _KIB)}, {"type": WORD}),
    "NPU_MODULE_MEM": Samples(MODULE_MEMORY, {"totalReserved": ("{moduleId}", "B", 1.0)}, {"moduleId": MODULE}),
    "AICORE_FREQ": Samples("AI Core Freq", {"freq": ("AI Core Freq", "MHz", 1.0)}),
    "ACC_PMU": Samples(
        "Acc PMU",
        {
            "readBwLevel": ("read_bandwidth {accId}", "", 1.0),
            "writeBwLevel": ("write_band_width {accId}", "", 1.0),
            "readOstLevel": ("read_ost {accId}", "", 1.0),
            "writeOstLevel": ("write_ost {accId}", "", 1.0),
        },
        {"accId": OPTIONAL_NUMBER},
    ),
    "SOC_BANDWIDTH_LEVEL": Samples(
        "Stars Soc Info", {"l2BufferBwLevel": ("L2 Buffer Bw Level", "", 1.0), "mataBwLevel": ("Mata Bw Level", "", 1.0)}
    ),
    "QOS": Samples("QoS", {"bandwidth": ("QoS {eventName}", "", 1.0)}, {"eventName": TEXT}),
    "HCCS": Samples("HCCS", {"txThroughput": ("HCCS/Tx", "MB/s", _MIB), "rxThroughput": ("HCCS/Rx", "MB/s", _MIB)}),
    "NIC": Samples("NIC", _PORTS, {"funcId": NUMBER}),
    "ROCE": Samples("RoCE", _PORTS, {"funcId": NUMBER}),
    # latencies behind what is transferred
    "PCIE": Samples("PCIe", {name: (name, "", 1.0) for name in sorted(PCIE_VALUES, key=lambda name: "Latency" in name)}),
    "SAMPLE_PMU_TIMELINE": Samples(
        "AI Core Utilization",
        {
            "usage": ("{coreType} {coreId}/usage", "%", 1.0),
            "freq": ("{coreType} {coreId}/freq", "MHz", 1.0),
            "totalCycle": ("{coreType} {coreId}/totalCycle", "cycles", 1.0),
        },
        {"coreId": NUMBER, "coreType": WORD},
    ),
    # of the host: the timeline also has the process's share of all processors together, and more than these rates
    "CPU_USAGE": Samples("CPU Usage", {"usage": ("CPU {cpuId}", "%", 1.0)}, {"cpuId": NUMBER}),
    "HOST_MEM_USAGE": Samples("Memory Usage", {"usage": ("Memory Usage", "%", 1.0)}),
    "HOST_DISK_USAGE": Samples(
        "Disk Usage",
        {"readRate": ("Disk/Read", "", 1.0), "writeRate": ("Disk/Write", "", 1.0), "usage": ("Disk Usage", "%", 1.0)},
    ),
    "HOST_NETWORK_USAGE": Samples("Network Usage", {"usage": ("Network Usage", "%", 1.0), "speed": ("Network/Speed", "", 1.0)}),
}
