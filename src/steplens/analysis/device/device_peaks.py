"""What a device can do at most: arithmetic per second by type, and bytes per second to its memory.

Figures are those of the manufacturers' data sheets, dense (without structured sparsity). A device that is not in the
table has no known peak; nothing is guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from steplens.trace.building.devices import product_names
from steplens.trace.trace import Trace

_TERA = 10**12
_GIGA = 10**9


@dataclass(frozen=True)
class DevicePeak:
    """The limits of one device.

    Attributes:
        name: of the device, as the data sheet has it.
        float32: FLOP/s in float32 without reduced precision.
        tf32: FLOP/s of float32 matrix products that may round to TF32; None where the device has none.
        half: FLOP/s in float16 and bfloat16 on matrix units; None where it has none.
        memory: bytes/s of its memory.
    """

    name: str
    float32: float | None
    tf32: float | None
    half: float | None
    memory: float | None

    def flops_per_second(self, dtype: str | None, achieved: float | None = None) -> float | None:
        """Peak for one type, by PyTorch's C++ name of it; None where it is not known.

        Args:
            dtype: "float", "c10::BFloat16" ...
            achieved: FLOP/s that were reached. A float32 product that exceeds the float32 peak rounded to TF32, whose peak
                counts then: a trace does not say whether it may.
        """
        if dtype in _HALF:
            return self.half
        if dtype not in _FLOAT32:
            return None
        beyond = achieved is not None and self.float32 is not None and achieved > self.float32
        return self.tf32 if beyond and self.tf32 is not None else self.float32


_HALF = ("c10::Half", "c10::BFloat16", "half", "bfloat16", "float16", "DT_FLOAT16", "DT_BF16")
_FLOAT32 = ("float", "float32", "DT_FLOAT")


def _make_peak(name: str, float32: float | None, tf32: float | None, half: float | None, memory_gb: float | None) -> DevicePeak:
    """Figures in 10**12 FLOP/s and 10**9 bytes/s."""
    figures = ((float32, _TERA), (tf32, _TERA), (half, _TERA), (memory_gb, _GIGA))
    return DevicePeak(name, *(None if value is None else value * unit for value, unit in figures))


#: the first pattern found in the product's name decides, without letter case; more exact ones come first
TABLE: tuple[tuple[str, DevicePeak], ...] = (
    (r"\bB200\b", _make_peak("NVIDIA B200", 80, 1100, 2250, 8000)),
    (r"\bGH200\b|\bH200\b", _make_peak("NVIDIA H200", 67, 494.7, 989.4, 4800)),
    (r"\bH100 PCIe", _make_peak("NVIDIA H100 PCIe", 51, 378, 756, 2000)),
    (r"\bH100\b", _make_peak("NVIDIA H100 SXM", 67, 494.7, 989.4, 3350)),
    (r"\bA100\b.*PCIe.*80|\bA100 80GB PCIe", _make_peak("NVIDIA A100 80GB PCIe", 19.5, 156, 312, 1935)),
    (r"\bA100\b.*80GB", _make_peak("NVIDIA A100 80GB", 19.5, 156, 312, 2039)),
    (r"\bA100\b", _make_peak("NVIDIA A100 40GB", 19.5, 156, 312, 1555)),
    (r"\bL40S\b", _make_peak("NVIDIA L40S", 91.6, 183, 362, 864)),
    (r"\bL4\b", _make_peak("NVIDIA L4", 30.3, 60, 121, 300)),
    (r"\bA40\b", _make_peak("NVIDIA A40", 37.4, 74.8, 149.7, 696)),
    (r"\bA10\b", _make_peak("NVIDIA A10", 31.2, 62.5, 125, 600)),
    (r"\bV100\b.*PCIe", _make_peak("NVIDIA V100 PCIe", 14, None, 112, 900)),
    (r"\bV100\b", _make_peak("NVIDIA V100 SXM2", 15.7, None, 125, 900)),
    (r"\bT4\b", _make_peak("NVIDIA T4", 8.1, None, 65, 320)),
    (r"\bP100\b", _make_peak("NVIDIA P100", 10.6, None, None, 732)),
    (r"\bMI300X\b", _make_peak("AMD MI300X", 163.4, 653.7, 1307.4, 5300)),
    # a process sees one of the two dies of the card as its device
    (r"\bMI250X\b", _make_peak("AMD MI250X, one die", 47.9, None, 191.5, 1638)),
    (r"\bMI250\b", _make_peak("AMD MI250, one die", 45.3, None, 181, 1638)),
    (r"Ascend910A\b", _make_peak("Ascend 910A", None, None, 256, 1200)),
)
_KNOWN = tuple((re.compile(pattern, re.IGNORECASE), peak) for pattern, peak in TABLE)


def peak_of(product: str) -> DevicePeak | None:
    """The limits of a device by its product name; None where it is not in the table."""
    return next((peak for pattern, peak in _KNOWN if pattern.search(product)), None)


def device_peak(trace: Trace) -> DevicePeak | None:
    """The limits of the devices of a trace; None where they are unknown, or differ, or the CPU is the device."""
    if not trace.has_accelerator:
        return None
    peaks = {peak_of(name) for name in product_names(trace).values()}
    return peaks.pop() if len(peaks) == 1 else None
