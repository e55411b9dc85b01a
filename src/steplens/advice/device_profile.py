"""What is known of a device: cores, clock, peaks and links. What nothing tells is None, never guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steplens.analysis.device.device_peaks import DevicePeak, device_peak
from steplens.trace.building.devices import product_names
from steplens.trace.trace import Trace

#: bandwidth of one link in one direction by transport, GB/s, by a pattern of the product's name; the first that matches counts.
#: NVIDIA's from data sheets, Ascend's as MindStudio Insight counts them
_LINKS_GBPS: tuple[tuple[str, Mapping[str, float]], ...] = (
    (r"\bV100", {"NVLINK": 150, "PCIE": 16}),
    (r"\b[AH]800", {"NVLINK": 200, "PCIE": 32}),
    (r"\bA100", {"NVLINK": 300, "PCIE": 32}),
    (r"\bG?H[12]00", {"NVLINK": 450, "PCIE": 64}),
    (r"^Ascend910_?B", {"HCCS": 18, "PCIE": 20, "RDMA": 12.5}),
)

#: major number of NVIDIA's compute capability from which on there are matrix units, and those that take float32
MATRIX_UNITS, MATRIX_UNITS_FOR_FLOAT32 = 7, 8


@dataclass(frozen=True)
class DeviceProfile:
    """What a trace and the tables of products tell of a device; None is unknown.

    Attributes:
        name: the product.
        cube_cores: cores with a matrix unit (AI cores), or multiprocessors of a GPU.
        vector_cores: cores with vector units alone.
        core_mhz: rated clock of the AI cores.
        capability: major number of NVIDIA's compute capability.
        peak: what it computes and reads at most.
    """

    name: str | None = None
    cube_cores: int | None = None
    vector_cores: int | None = None
    core_mhz: int | None = None
    capability: int | None = None
    peak: DevicePeak | None = None

    def link_gbps(self, transport: str) -> float | None:
        """Peak of one link in one direction, GB/s."""
        links = next((links for pattern, links in _LINKS_GBPS if re.search(pattern, (self.name or "")[:200])), {})
        return links.get(transport)

    @property
    def matrix_speedup(self) -> float | None:
        """How many times as many operations matrix units make as float32 arithmetic outside them.

        In the precision that they have for float32 matrices (TF32), or else in float16.
        """
        if self.peak is None or not self.peak.float32:
            return None
        units = self.peak.tf32 or self.peak.half
        return units / self.peak.float32 if units else None


def device_profile(trace: Trace) -> DeviceProfile:
    """The profile of the first device of a trace; the devices of a process are of one kind.

    Cores and clock are what the driver said while recording: ``deviceProperties`` of CUDA and ROCm, the device's ``info.json``
    of CANN (``device_info`` in ``meta``).
    """
    names = product_names(trace)
    name = names[min(names)] if names else None
    gpu = _first_object(trace.meta_value("deviceProperties"))
    npu = _first_object(trace.meta_value("device_info"))
    is_nvidia = bool(re.search(r"(?i)nvidia|tesla|geforce|quadro|rtx", (name or "")[:200]))
    return DeviceProfile(
        name=name,
        cube_cores=_positive_integer(gpu.get("numSms")) or _positive_integer(npu.get("ai_core_num")),
        vector_cores=_positive_integer(npu.get("aiv_num")),
        core_mhz=_positive_integer(npu.get("aic_frequency")),
        capability=_positive_integer(gpu.get("computeMajor")) if is_nvidia else None,
        peak=device_peak(trace),
    )


def _first_object(entries: object) -> Mapping[str, Any]:
    """The first object of a list; an empty one where there is none."""
    return next((entry for entry in entries if isinstance(entry, dict)), {}) if isinstance(entries, list) else {}


def _positive_integer(value: object) -> int | None:
    """A whole number above 0, from JSON or text; None for anything else."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return int(text) if re.fullmatch(r"[1-9]\d{0,8}", text) else None
