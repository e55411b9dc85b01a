"""``mindspore.profiler.mstx``: marks and ranges of the user. On a CPU, where MindSpore's own do nothing, they are recorded."""

from __future__ import annotations

from steplens.collect.mindspore.recording.marks import mark, range_end, range_start

__all__ = ["mark", "range_end", "range_start"]
