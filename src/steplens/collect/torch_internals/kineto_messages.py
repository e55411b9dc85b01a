"""Keeps Kineto from writing two lines to stderr for every window (``USDT:... profiler_start``), which say nothing to anybody.

Kineto reads the least level of what it writes from the environment when it is prepared for the first time in a process. The marks
have a level of their own, in new releases only and above that of errors, so its errors are not written either: what failed
is seen in the window, whose health says it. Whoever sets ``KINETO_LOG_LEVEL`` decides for himself (4: errors and marks).
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import Any

_VARIABLE = "KINETO_LOG_LEVEL"
#: the levels, in a header that comes with PyTorch
_HEADER = Path("include", "kineto", "ILoggerObserver.h")
_MARKS = re.compile(r"\bUSDT\s*=\s*(\d+)")


def prepare_recording(kineto: Any) -> None:
    """Prepare PyTorch's object to record; the environment is afterwards what it was."""
    level = None if os.environ.get(_VARIABLE) else _level_above_marks()
    if level is None:
        kineto._prepare_trace()
        return
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = str(level)
    try:
        kineto._prepare_trace()
    finally:
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before


#: of processes that have prepared Kineto, which asks no more
_prepared = False


def _level_above_marks() -> int | None:
    """The level at which marks are not written; None where there are none, or where Kineto has been asked before."""
    global _prepared
    if _prepared:
        return None
    _prepared = True
    torch: Any = importlib.import_module("torch")
    try:
        header = (Path(torch.__file__).parent / _HEADER).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    marks = _MARKS.search(header)
    return int(marks[1]) + 1 if marks is not None else None
