"""The marks and ranges of the user in the window that is open: the functions of ``steplens.mindspore.mstx``."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

from steplens.collect.common import log
from steplens.collect.mindspore.recording.window import Window, open_window

_DOMAIN = "default"
_ids = itertools.count(1)
#: of ranges that are open: window, domain, message, start (Unix ns), thread
_open: dict[int, tuple[Window, str, str, int, int]] = {}


def mark(message: str, stream: Any = None, domain: str = _DOMAIN) -> None:
    """Mark this moment; nothing happens while nothing is recorded.

    Args:
        message: what to write there.
        stream: without effect on a CPU.
        domain: marks of one purpose share one.
    """
    window = _window_for_mark(message, domain)
    if window is not None:
        now = time.time_ns()
        window.mark([domain, message, now, now, threading.get_native_id()])


def range_start(message: str, stream: Any = None, domain: str = _DOMAIN) -> int:
    """Begin a range; gives its number for :func:`range_end`, 0 while nothing is recorded."""
    window = _window_for_mark(message, domain)
    if window is None:
        return 0
    number = next(_ids)
    _open[number] = (window, domain, message, time.time_ns(), threading.get_native_id())
    return number


def range_end(range_id: int, domain: str = _DOMAIN) -> None:
    """End a range, in any thread. A range whose window has closed meanwhile is not recorded."""
    if type(range_id) is not int:
        log.warning(f"mstx.range_end: range_id should be a whole number, not {range_id!r}.")
        return
    found = _open.pop(range_id, None)
    if found is not None and found[0] is open_window():
        window, begun_in, message, start_ns, tid = found
        window.mark([begun_in, message, start_ns, time.time_ns(), tid])


def _window_for_mark(message: Any, domain: Any) -> Window | None:
    if not isinstance(message, str) or not message or not isinstance(domain, str) or not domain:
        log.warning(f"mstx: message and domain should be texts that are not empty, not {message!r} and {domain!r}.")
        return None
    window = open_window()
    return window if window is not None and window.wants_marks(domain) else None
