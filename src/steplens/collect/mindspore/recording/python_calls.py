"""The Python calls of the thread that trains, while a window is open: what ``with_stack`` asks for.

MindSpore records no stacks on a CPU. The interpreter tells every call and return of a thread, of Python's functions and of those
written in C, among which are the ones that hand operators to MindSpore.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from array import array
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from steplens.collect.common import log
from steplens.common import rundir

#: pairs of 8 byte numbers, little endian: Unix ns, and twice the index of a name, one more for a return; -1 ends the recording
CALLS_FILE = "python_calls.bin"
#: the names, a JSON list of texts
NAMES_FILE = "python_names.json"
_END = -1
#: 16 bytes each, held in memory until the window closes
_MOST_RECORDS = 16 << 20
_OWN = str(Path(__file__).resolve().parents[3]) + os.sep
_NOT_RECORDED = -1


class PythonCalls:
    """Records the calls of the thread that starts it.

    Args:
        most: so many records are kept; recording ends with the last one.
    """

    def __init__(self, most: int = _MOST_RECORDS) -> None:
        self._values = array("q")
        self._most = 2 * most
        self._names: list[str] = []
        # by the identity of the code, which is kept so that it stays one
        self._codes: dict[int, int] = {}
        self._kept: list[CodeType] = []
        self._functions: dict[str, int] = {}
        self._prefixes = sorted({os.path.join(os.path.abspath(path), "") for path in sys.path}, key=len, reverse=True)
        self._recording = False
        self._thread = 0
        self._callback = self._record_event
        self.problem = ""

    def start(self) -> None:
        """Begin with the calls that the thread is in."""
        if sys.getprofile() is not None:
            self.problem = "another tool observes the calls of Python (sys.setprofile), so none were recorded"
            log.warning(f"with_stack: {self.problem}.")
            return
        self._recording, self._thread = True, threading.get_native_id()
        _active.append(self)
        open_calls = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            open_calls.append(self._number_of(frame.f_code))
            frame = frame.f_back
        now = time.time_ns()
        for number in reversed(open_calls):
            if number != _NOT_RECORDED:
                self._values.extend((now, 2 * number))
        sys.setprofile(self._callback)

    def stop(self) -> None:
        """End; where another thread asks for it, what the recorded thread calls from now on is not recorded."""
        if sys.getprofile() is self._callback:
            sys.setprofile(None)
        elif self._recording and not self.problem and threading.get_native_id() == self._thread:
            self.problem = "another tool began to observe the calls of Python (sys.setprofile); those behind it were not recorded"
        self._finish_recording()

    def _finish_recording(self) -> None:
        if self._recording:
            self._recording = False
            self._values.extend((time.time_ns(), _END))
        if self in _active:
            _active.remove(self)

    def save(self, folder: Path) -> None:
        """Write what was recorded, if anything was.

        Raises:
            OSError: it could not be written.
        """
        if not self._values:
            return
        if sys.byteorder == "big":
            self._values.byteswap()
        rundir.write_bytes(folder / NAMES_FILE, json.dumps(self._names).encode())
        rundir.write_bytes(folder / CALLS_FILE, self._values.tobytes())

    def _record_event(self, frame: FrameType, event: str, argument: Any) -> None:
        now = time.time_ns()
        try:
            if not self._recording:
                sys.setprofile(None)
                return
            code = frame.f_code
            number = self._codes.get(id(code))
            if number is None:
                number = self._number_of(code)
            if number == _NOT_RECORDED:
                return
            if event[0] == "c" and event[1] == "_":
                # c_call, c_return and c_exception
                name = argument.__qualname__
                number = self._functions.get(name)
                if number is None:
                    number = self._functions[name] = self._add_name(f"<built-in function {name}>")
                is_return = event != "c_call"
            else:
                is_return = event == "return"
            self._values.append(now)
            self._values.append(2 * number + is_return)
            if len(self._values) >= self._most:
                self.problem = f"the calls of Python fill the {self._most // 2} records that are kept; later ones are missing"
                sys.setprofile(None)
                self._finish_recording()
        except Exception as error:  # the boundary to somebody's training
            sys.setprofile(None)
            if len(self._values) % 2:
                self._values.pop()
            self.problem = f"the recording of Python's calls ended early: {type(error).__name__}: {error}"
            self._finish_recording()

    def _number_of(self, code: CodeType) -> int:
        """The index of a function's name; of our own functions that they are not recorded."""
        number = self._codes.get(id(code))
        if number is None:
            file = code.co_filename
            if file.startswith(_OWN):
                number = _NOT_RECORDED
            else:
                number = self._add_name(f"{self._short_path(file)}({code.co_firstlineno}): {code.co_name}")
            self._codes[id(code)] = number
            self._kept.append(code)
        return number

    def _short_path(self, file: str) -> str:
        """The path of a file below the folder that it is imported from."""
        return next((file[len(prefix) :] for prefix in self._prefixes if file.startswith(prefix)), file)

    def _add_name(self, name: str) -> int:
        self._names.append(name)
        return len(self._names) - 1


_active: list[PythonCalls] = []


def _in_child() -> None:
    """A process that was forked records nothing: nobody would ever save it."""
    for calls in _active:
        calls._recording = False
        calls._values = array("q")
    _active.clear()


os.register_at_fork(after_in_child=_in_child)
