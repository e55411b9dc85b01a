"""Findings about the collected data itself: what was not collected, lost or failed."""

from __future__ import annotations

import threading
from typing import Any

from steplens.collect.common import exception_text, log

INFO = "info"
WARNING = "warning"
ERROR = "error"


class Health:
    """The findings of one profiler object.

    Findings about its configuration belong to every window; the others belong to the window that was
    open, or to the next one if none was.
    """

    def __init__(self) -> None:
        self._configuration: list[dict[str, Any]] = []
        self._window: list[dict[str, Any]] = []
        # a handler of a signal may have a finding, too, while its own thread is inside
        self._lock = threading.RLock()

    def add(
        self, check: str, severity: str, message: str, *, unsafe: str = "", count: int = 1, configuration: bool = False
    ) -> None:
        """Add a finding; a repeated one only counts up.

        Args:
            check: name of what was checked, for programs.
            severity: ``info``, ``warning`` or ``error``.
            message: what was found, for people.
            unsafe: which results it makes doubtful.
            count: how many events it stands for.
            configuration: it holds for every window of the object.
        """
        # it is shown and put into tables, where half of a pair of UTF-16 is no text
        message = message.encode(errors="backslashreplace").decode()
        with self._lock:
            findings = self._configuration if configuration else self._window
            for finding in findings:
                if finding["check"] == check and finding["message"] == message:
                    finding["count"] += count
                    return
            findings.append({"check": check, "severity": severity, "count": count, "message": message, "unsafe": unsafe})

    def report(self, check: str, severity: str, message: str, *, unsafe: str = "", configuration: bool = False) -> None:
        """Print a finding for the user, and add it; arguments as of :meth:`add`."""
        {INFO: log.info, WARNING: log.warning, ERROR: log.error}[severity](message)
        self.add(check, severity, message, unsafe=unsafe, configuration=configuration)

    def report_failure(self, call: str, exception: BaseException, *, unsafe: str = "everything") -> None:
        """Print that a call has failed, and add it."""
        log.report_failure(call, exception)
        self.add("call_failed", ERROR, f"{call} failed: {exception_text.describe_exception(exception)}", unsafe=unsafe)

    def take(self) -> list[dict[str, Any]]:
        """All findings for a window that closes; the next window starts without those of this one."""
        with self._lock:
            window, self._window = self._window, []
            return [dict(finding) for finding in self._configuration] + window
