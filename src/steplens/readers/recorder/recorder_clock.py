"""From the ticks of a recorder's file to Unix time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from steplens.common.errors import InputError
from steplens.formats import recorder as layout
from steplens.readers.recorder.recorder_blocks import Blocks, Records
from steplens.trace.building.nesting import Int64Array

Ticks = npt.NDArray[np.uint64]

#: what lies farther from the first and last pair of both clocks is damage: the writer leaves a pair every second
_BEYOND_NS = 3_600_000_000_000
#: no counter ticks more seldom or more often, in ns for a tick
_SLOWEST, _FASTEST = 1e4, 1e-2
#: no clock of Unix time shows less or more
_EARLIEST_NS, _LATEST_NS = 0, 1 << 62


class RecorderClock:
    """Unix times of ticks: a straight line between every two pairs of both clocks, and on from the first and last two.

    Attributes:
        first_ns: Unix time of the first pair: when recording began.
        last_ns: of the last one.
        damaged: pairs that cannot be true, and were left out.
    """

    def __init__(self, blocks: Blocks, path: Path) -> None:
        """See the class.

        Raises:
            InputError: the file does not tell the time.
        """
        self._is_counter = blocks.header.clock_source == layout.PROCESSOR_COUNTER
        ticks, monotonic = _possible_pairs(blocks.clocks)
        self.damaged = len(blocks.clocks) - len(ticks)
        if not len(ticks) or (self._is_counter and len(ticks) < 2):
            problem = "breaks off before it says how fast its clock runs, so nothing in it has a time"
            raise InputError(path, problem, "Record it again")
        offset_ns = blocks.header.unix_minus_monotonic_ns
        first, last = int(monotonic[0]) + offset_ns, int(monotonic[-1]) + offset_ns
        if not _EARLIEST_NS < first <= last < _LATEST_NS:
            raise InputError(path, "says that it was recorded at a time that no clock shows: it is damaged", "Record again")
        self.first_ns, self.last_ns = first, last
        self._first_ticks = ticks[0]
        # in differences, which a double holds exactly: counters may have run for years
        places = self._ticks_after_first(ticks).astype(np.float64)
        times = (monotonic - monotonic[0]).astype(np.float64)
        before = (times[1] - times[0]) / (places[1] - places[0]) if len(ticks) > 1 else 1.0
        after = (times[-1] - times[-2]) / (places[-1] - places[-2]) if len(ticks) > 1 else 1.0
        self._places = np.r_[places[0] - _BEYOND_NS / before, places, places[-1] + _BEYOND_NS / after]
        self._times = np.r_[times[0] - _BEYOND_NS, times, times[-1] + _BEYOND_NS]

    def _ticks_after_first(self, ticks: Ticks) -> Int64Array:
        after_first: Int64Array = (ticks - self._first_ticks).view(np.int64)
        return after_first

    def are_possible(self, ticks: Ticks) -> npt.NDArray[np.bool_]:
        """Whether ticks are of the time of the recording."""
        after_first = self._ticks_after_first(ticks)
        # the begin is exact: recording begins behind the first pair
        possible: npt.NDArray[np.bool_] = (after_first >= 0) & (after_first < self._places[-1])
        return possible

    def unix_times(self, ticks: Ticks) -> Int64Array:
        """Unix times in ns of ticks that are possible; what comes later has no smaller one."""
        after_first = np.interp(self._ticks_after_first(ticks).astype(np.float64), self._places, self._times)
        times: Int64Array = after_first.astype(np.int64) + self.first_ns
        return times


def _possible_pairs(pairs: Records) -> tuple[Ticks, Int64Array]:
    """Ticks and monotonic times of the pairs in which both clocks go on, as fast as clocks do."""
    kept_rows: list[int] = []
    # one a second: a loop over them is short
    all_ticks, all_times = pairs["ticks"].tolist(), pairs["monotonic_ns"].tolist()
    for row, (ticks, time) in enumerate(zip(all_ticks, all_times, strict=True)):
        if kept_rows:
            passed_ticks, passed_ns = ticks - all_ticks[kept_rows[-1]], time - all_times[kept_rows[-1]]
            if passed_ticks <= 0 or not _FASTEST <= passed_ns / passed_ticks <= _SLOWEST:
                continue
        kept_rows.append(row)
    return pairs["ticks"][kept_rows].copy(), pairs["monotonic_ns"][kept_rows].copy()
