"""When the streams of an accelerator get to a mark: events on the stream, timed by the device.

A device times events against each other, not against the host. One event more, for which the host waits, ties both
together at the end of the window.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from steplens.collect.common import clock, exception_text

#: the most marks on streams in a window: each holds events of the driver
LIMIT = 1 << 16

#: the driver's number of the default stream, and that which CUPTI gives it
_DEFAULT_STREAM = 0
_TRACED_DEFAULT_STREAM = 7

_MARKER, _RANGE = 0, 2


@dataclass
class _OnStream:
    """A mark or a range on a stream."""

    text: int
    tid: int
    stream: Any
    begin: Any
    end: Any = None
    ended: bool = False


class StreamMarks:
    """The marks on streams of one window; ``say`` gets a sentence when a stream cannot be marked."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._marks: list[_OnStream] = []
        #: text, kind, start_ns, end_ns, tid and stream of each, once finished
        self.rows: list[tuple[int, int, int, int, int, int]] = []

    def start(self, text: int, tid: int, stream: Any) -> int:
        """Mark a moment, or the begin of a range; returns its number for :meth:`end`, or 0 when the stream cannot be marked."""
        device = getattr(stream, "device", None)
        if device is None or getattr(device, "type", "cpu") == "cpu" or not hasattr(stream, "stream_id"):
            self._say("A mark was given a stream that is not one of an accelerator: only the host's side is recorded.")
            return 0
        if len(self._marks) >= LIMIT:
            self._say(f"A window keeps {LIMIT} marks on streams: of further ones only the host's side is recorded.")
            return 0
        try:
            self._marks.append(_OnStream(text, tid, stream, _record_event(stream)))
        except Exception as exception:  # the boundary to the device's runtime
            self._report_failure(exception)
            return 0
        return len(self._marks)

    def end(self, number: int) -> None:
        """Let what was begun be a range that ends here."""
        range_ = self._marks[number - 1]
        range_.ended = True
        try:
            range_.end = _record_event(range_.stream)
        except Exception as exception:  # the boundary to the device's runtime
            self._report_failure(exception)

    def finish(self) -> None:
        """Wait for the devices, and turn the events into times of the host."""
        anchors: dict[Any, tuple[Any, int]] = {}
        for mark in self._marks:
            if mark.ended and mark.end is None:
                continue
            try:
                device = mark.stream.device
                if device not in anchors:
                    anchors[device] = _anchor_event(device)
                anchor, now = anchors[device]
                start = now - round(mark.begin.elapsed_time(anchor) * 1e6)
                # the length between the two events of a range: more exact than two long distances to the anchor
                length = 0 if mark.end is None else round(mark.begin.elapsed_time(mark.end) * 1e6)
            except Exception as exception:  # the boundary to the device's runtime
                self._report_failure(exception)
                continue
            kind = _RANGE if mark.ended else _MARKER
            self.rows.append((mark.text, kind, start, start + max(length, 0), mark.tid, _stream_number(mark.stream)))
        self._marks = []

    def _report_failure(self, exception: Exception) -> None:
        self._say(f"A mark on a stream is missing: {exception_text.describe_exception(exception)}".splitlines()[0])


def _device_module(device: Any) -> Any:
    """``torch.cuda`` or its like for another kind of device."""
    return importlib.import_module("torch").get_device_module(device)


def _record_event(stream: Any) -> Any:
    event = _device_module(stream.device).Event(enable_timing=True)
    event.record(stream)
    return event


def _anchor_event(device: Any) -> tuple[Any, int]:
    """An event that has just happened on an idle device, and when."""
    module = _device_module(device)
    module.synchronize(device)
    event = module.Event(enable_timing=True)
    stream = module.current_stream(device)
    before = clock.now_ns()
    event.record(stream)
    event.synchronize()
    return event, (before + clock.now_ns()) // 2


def _stream_number(stream: Any) -> int:
    """The number of a stream, as traces of the device have it as far as that is known."""
    if getattr(stream, "cuda_stream", None) == _DEFAULT_STREAM:
        return _TRACED_DEFAULT_STREAM
    return int(stream.stream_id)
