"""What CANN knows of the operators that run while a window records (``record_op_args``), for its tuning tools.

CANN writes it: a JSON file per operator and shape, with type, attributes, and format, type and shape of inputs and outputs,
below ``<run directory>_op_args/<process id>``. Its ``op_compiler`` and AOE read that folder. The calls are the public
``aclopStartDumpArgs`` and ``aclopStopDumpArgs`` of ``libascend_dump.so``.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steplens.collect.ascend import codes, library
from steplens.collect.common import log
from steplens.collect.common.health import WARNING
from steplens.common import rundir

NAME = "libascend_dump.so"

#: a library file to use instead of the one of the installed CANN, as ``library.OVERRIDE``
OVERRIDE = "STEPLENS_ASCEND_DUMP_LIBRARY"

#: added to the name of the run directory
SUFFIX = "_op_args"

#: ``ACL_OP_DUMP_OP_AICORE_ARGS``, the only kind there is
_AI_CORE = 0x1
_START, _STOP = "aclopStartDumpArgs", "aclopStopDumpArgs"


class OperatorArguments:
    """Lets CANN write down the operators of one window after the other, and ``report``s failures. Its methods never raise."""

    def __init__(self, report: Callable[..., None]) -> None:
        self._report = report
        self._stop: Any = None

    def start(self, run_directory: Path) -> None:
        """Begin, for the window of this run directory."""
        try:
            handle, name = library.find_library(NAME, OVERRIDE, "CANN's library for dumps")
            begin, end = getattr(handle, _START, None), getattr(handle, _STOP, None)
            if begin is None or end is None:
                self._report_failure(f"{name} has no {_START}: this version of CANN does not offer it")
                return
            begin.restype, begin.argtypes = ctypes.c_int, (ctypes.c_uint32, ctypes.c_char_p)
            end.restype, end.argtypes = ctypes.c_int, (ctypes.c_uint32,)
            target = folder_of(run_directory)
            rundir.make_directory(target)
            code = int(begin(_AI_CORE, str(target).encode()))
            if code == codes.SUCCESS:
                self._stop = end
                return
            with contextlib.suppress(OSError):
                target.rmdir()
            self._report_failure(codes.describe_failure(_START, code))
        except library.LibraryError as error:
            self._report_failure(str(error))
        except Exception as error:  # nothing of this may reach the training
            self._report_failure(f"{type(error).__name__}: {error}")

    def stop(self) -> None:
        """End; CANN writes the files."""
        end, self._stop = self._stop, None
        if end is None:
            return
        try:
            code = int(end(_AI_CORE))
            if code != codes.SUCCESS:
                self._report_failure(codes.describe_failure(_STOP, code))
        except Exception as error:  # nothing of this may reach the training
            self._report_failure(f"{type(error).__name__}: {error}")

    def _report_failure(self, reason: str) -> None:
        message = f"No operator arguments (record_op_args): {reason}."
        log.warning(message)
        self._report("not_collected", WARNING, message)


def folder_of(run_directory: Path) -> Path:
    """The folder beside a run directory that CANN writes to."""
    return run_directory.with_name(run_directory.name + SUFFIX)
