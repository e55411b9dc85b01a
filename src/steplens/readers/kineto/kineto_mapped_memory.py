"""Totals of the CPU's memory where PyTorch maps some of it, as batches of DataLoader workers are.

PyTorch tells its profiler of memory that it maps with 0 in place of the allocator's total, though the allocator holds what it
held. Such an event, taken as it is, ends every curve at 0 for a moment, and what is alive is more than the peak.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.trace.building.lookup import sort_rows
from steplens.trace.building.nesting import Int64Array


def with_mapped_memory(frame: pl.DataFrame) -> pl.DataFrame:
    """Allocator events of which the totals hold what is mapped, too.

    An event that allocates and leaves 0 allocated is of mapped memory, and so is the release of its address, and a release that
    leaves 0 allocated where the allocator held something else. What was mapped before the first event and is
    released later counts from the beginning.

    Args:
        frame: of one process: time_ns, address, bytes (negative for a release), allocated, reserved (0 for the CPU), device_type.

    Returns:
        The same rows in the same order; those of other devices, and of sources without totals, are unchanged.
    """
    if not {"allocated", "reserved", "address", "bytes"} <= set(frame.columns):
        return frame
    cpu = frame.with_row_index("row").filter(
        (pl.col("device_type") == "CPU") & pl.all_horizontal(pl.col("allocated", "bytes").is_not_null())
    )
    cpu = sort_rows(cpu, ["time_ns"])
    size, total = cpu["bytes"].to_numpy(), cpu["allocated"].to_numpy()
    if not np.any((total == 0) & (size > 0)) or not np.any(total):
        return frame
    mapped, before = _find_mapped_events(cpu["address"].fill_null(-1).to_numpy(), size, total)
    held = before + np.cumsum(np.where(mapped, size, 0))
    place = np.maximum.accumulate(np.where(mapped, -1, np.arange(len(total))))
    first = int(np.argmax(~mapped))
    own_total = np.where(place < 0, total[first] - size[first], total[place])
    totals = cpu.select(
        "row", allocated=pl.Series(own_total + held), reserved=pl.when(pl.Series(mapped)).then(0).otherwise("reserved")
    )
    return frame.with_row_index("row").update(totals, on="row").drop("row")


def _find_mapped_events(address: Int64Array, size: Int64Array, total: Int64Array) -> tuple[npt.NDArray[np.bool_], int]:
    """Which events are of mapped memory, and how much was mapped before the first; in order of time."""
    is_mapped = np.zeros(len(total), dtype=bool)
    first = int(np.argmax(total != 0))
    #: the allocator's total after its last event
    held = int(total[first] - size[first])
    mapped: set[int] = set()
    earlier, last = 0, -1
    for row in np.flatnonzero(total == 0).tolist():
        if row - 1 > last:
            # the events between two that leave nothing are the allocator's
            held = int(total[row - 1])
        place, change = int(address[row]), int(size[row])
        if change > 0:
            is_mapped[row] = True
            mapped.add(place)
        elif place in mapped:
            is_mapped[row] = True
            mapped.discard(place)
        elif held + change != 0:
            is_mapped[row] = True
            earlier -= change
        else:
            held = 0
        last = row
    return is_mapped, earlier
