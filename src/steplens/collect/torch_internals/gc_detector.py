"""Records the garbage collections of the Python interpreter that are longer than a threshold."""

from __future__ import annotations

import gc
import os
import threading
from typing import Any

from steplens.collect.common import clock


class GcDetector:
    """Listens to ``gc.callbacks`` between :meth:`start` and :meth:`stop`; keeps collections longer than a threshold (0: all)."""

    def __init__(self, threshold_ms: float) -> None:
        self._threshold_ns = int(threshold_ms * 1_000_000)
        # The interpreter never runs two collections at once, so one start time is enough for all threads.
        self._started = 0
        self._process = os.getpid()
        self.records: list[list[int]] = []

    def start(self) -> None:
        """Begin to record."""
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """End; the records stay."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._started = clock.now_ns()
            return
        started, self._started = self._started, 0
        if not started or os.getpid() != self._process:
            return
        ended = clock.now_ns()
        if ended - started >= self._threshold_ns:
            self.records.append([started, ended, info["generation"], self._process, threading.get_native_id()])
