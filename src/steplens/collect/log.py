"""Lines for the user on stderr: ``[time] [LEVEL] [pid] profiler.py: text``.

Warnings are muted with ``TORCH_NPU_WARNING_DISABLE=1`` and on ranks other than 0, where they would repeat
what rank 0 says. Errors, and infos about missing data, are printed by every rank.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time


def _line(level: str, message: str) -> None:
    text = " ".join(message.splitlines())
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    # A closed stderr must not stop a training.
    with contextlib.suppress(Exception):
        print(f"[{stamp}] [{level}] [{os.getpid()}] profiler.py: {text}", file=sys.stderr, flush=True)


def info(message: str) -> None:
    """Print an information line."""
    _line("INFO", message)


def warning(message: str) -> None:
    """Print a warning line, unless warnings are muted."""
    muted = "1" in (os.environ.get("TORCH_NPU_WARNING_DISABLE"), os.environ.get("TORCH_NPU_DISABLED_WARNING"))
    if not muted and os.environ.get("RANK", "0") in ("", "0"):
        _line("WARNING", message)


def error(message: str) -> None:
    """Print an error line."""
    _line("ERROR", message)


def failed(call: str, exception: BaseException) -> None:
    """Print the one line that a failed call of the public interface leaves."""
    _line("ERROR", f"Call {call} failed. Exception: {type(exception).__name__}: {exception}")
