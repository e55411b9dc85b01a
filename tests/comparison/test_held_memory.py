"""What holds more memory, of programs whose allocations are known."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from steplens.comparison.held_memory import compare_held_memory
from steplens.comparison.measure import MeasuredFigures
from steplens.comparison.recordings import Recording
from steplens.trace.trace import Trace

from ..writers.builder import build, memory, op

MIB = 1 << 20


def recording(mib_of_mm: int, mib_of_add: int, *, is_recorded: bool = True, device: str = "CPU") -> Recording:
    """One step in which aten::mm and aten::add hold so much at once."""
    ops = [op("aten::mm", 0, 10, id=0), op("aten::add", 20, 30, id=1)]
    events = [
        memory(5, 1, mib_of_mm * MIB, allocated=mib_of_mm * MIB, op=0),
        memory(25, 2, mib_of_add * MIB, allocated=(mib_of_mm + mib_of_add) * MIB, op=1),
        memory(40, 1, -mib_of_mm * MIB, allocated=mib_of_add * MIB),
    ]
    events = [{**event, "device_type": device} for event in events]
    trace: Trace = build(ops=ops, **({"memory": events} if is_recorded else {}))
    return Recording(steps=pl.DataFrame(), usual=pl.DataFrame(), ranks=1, waited_share=None, traces=(trace,))


def test_the_operator_that_holds_more_is_named() -> None:
    total, mm = compare_held_memory([recording(10, 5), recording(10, 5)], [recording(30, 5)])
    assert total.name == "" and (total.before_bytes, total.after_bytes) == (15 * MIB, 35 * MIB)
    assert mm.name == "aten::mm" and mm.difference_bytes == pytest.approx(20 * MIB)


def test_less_in_one_place_and_more_in_another() -> None:
    found = compare_held_memory([recording(10, 5)], [recording(2, 20)])
    assert [(held.name, held.difference_bytes / MIB) for held in found] == [("", 7), ("aten::add", 15), ("aten::mm", -8)]


def test_a_recording_is_described_at_the_highest_peak_of_its_ranks_and_windows() -> None:
    """Which is the one that a limit and the pages have."""
    several = [recording(10, 5), recording(40, 5), recording(10, 5, is_recorded=False)]
    together = replace(several[0], traces=tuple(trace for part in several for trace in part.traces))
    total, mm = compare_held_memory([recording(10, 5)], [together, recording(20, 5)])
    peaks = MeasuredFigures([], [together, recording(20, 5)]).memory_peaks
    assert (total.before_bytes, total.after_bytes) == (15 * MIB, (45 + 25) / 2 * MIB)
    assert total.after_bytes == sum(peak or 0 for peak in peaks) / len(peaks)
    assert (mm.name, mm.after_bytes) == ("aten::mm", (40 + 20) / 2 * MIB)


def test_nothing_is_said_of_peaks_that_are_alike_or_unknown() -> None:
    assert compare_held_memory([recording(10, 5)], [recording(10, 5)]) == ()
    assert compare_held_memory([recording(10, 5)], [recording(30, 5, is_recorded=False)]) == ()
    assert compare_held_memory([], [recording(30, 5)]) == ()


def test_of_unlike_gpus_each_has_its_own_peak() -> None:
    total, mm = compare_held_memory([recording(10, 5, device="HIP")], [recording(30, 5, device="CUDA")])
    assert (total.device, total.before_bytes, total.after_bytes) == ("HIP and CUDA", 15 * MIB, 35 * MIB)
    assert mm.name == "aten::mm" and mm.difference_bytes == pytest.approx(20 * MIB)
    # a processor's memory is none of a GPU's
    assert compare_held_memory([recording(10, 5)], [recording(30, 5, device="CUDA")]) == ()
