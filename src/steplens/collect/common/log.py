"""Lines for the user on stderr: ``[time] [LEVEL] [pid] profiler.py: text``; what only tells how far it is: ``steplens: text``.

Warnings are muted with ``TORCH_NPU_WARNING_DISABLE=1`` and on ranks other than 0, where they would repeat
what rank 0 says. Errors, and infos about missing data, are printed by every rank. ``STEPLENS_QUIET=1`` mutes what only tells
how far the work is: lines of progress and the one that names the next command.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

from steplens.collect.common import exception_text


def write_line(text: str) -> None:
    """Write a line to stderr as far as that is possible: if it is closed, full or gone, nothing changes for the program."""
    stream, original = sys.stderr, sys.__stderr__
    with contextlib.suppress(Exception):
        if stream is None:  # closed before the program began
            return
        stream.flush()
        if original is not None and stream is original:
            # What cannot be written would stay in the stream's buffer, and Python ends with code 120 when it cannot empty that.
            os.write(original.fileno(), f"{text}\n".encode(original.encoding, "backslashreplace"))
        else:
            print(text, file=stream, flush=True)


def _write_message(level: str, message: str) -> None:
    text = " ".join(message.splitlines())
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    write_line(f"[{stamp}] [{level}] [{os.getpid()}] profiler.py: {text}")


def info(message: str) -> None:
    """Print an information line."""
    _write_message("INFO", message)


def is_quiet() -> bool:
    """Whether ``STEPLENS_QUIET`` asks for nothing but warnings and errors."""
    return os.environ.get("STEPLENS_QUIET", "") not in ("", "0")


def report_progress(message: str, rank: int = -1) -> None:
    """Print one line on how far the work is, unless it is muted or rank 0 says the same.

    Args:
        message: the line.
        rank: of this process, -1 where it is no part of a job.
    """
    if rank <= 0 and not is_quiet():
        write_line(f"steplens: {' '.join(message.splitlines())}")


def warning(message: str) -> None:
    """Print a warning line, unless warnings are muted."""
    muted = "1" in (os.environ.get("TORCH_NPU_WARNING_DISABLE"), os.environ.get("TORCH_NPU_DISABLED_WARNING"))
    if not muted and os.environ.get("RANK", "0") in ("", "0"):
        _write_message("WARNING", message)


def error(message: str) -> None:
    """Print an error line."""
    _write_message("ERROR", message)


def report_failure(call: str, exception: BaseException) -> None:
    """Print the one line that a failed call of the public interface leaves."""
    _write_message("ERROR", f"Call {call} failed. Exception: {exception_text.describe_exception(exception)}")
