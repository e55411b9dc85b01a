"""Interrupts that come while a window is saved: they wait until it is on disk, and reach the program then.

Python runs the handlers of signals on the main thread, between any two instructions, and what they raise comes out there:
``KeyboardInterrupt`` of Ctrl-C, ``SystemExit`` of a handler of SIGTERM, the exception of an alarm. In the middle of saving it
would take the window with it. So while one is saved, handlers of ours stand in the place of the program's: they note which
signals came, and the program's own get them afterwards. Signals that end a program which has no handler for them wait as well.

Somebody who asks a second time does not want to wait: see :data:`PATIENCE_S`. Handlers of other languages, and what another
thread does to this one (``PyThreadState_SetAsyncExc``), are not noticed here; for those every stage of saving can be begun again.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import CodeType
from typing import Any

from steplens.collect.common import log

#: an end that is asked for again so many seconds after the first time comes at once. What asks twice within that is no
#: impatient person: a terminal sends Ctrl-C to every process, and a launcher such as torchrun passes its own on to the same ones
PATIENCE_S = 1.0

#: what ends a program that has no handler for it, and is sent for that purpose
_ENDING = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))

#: their cause is the instruction that runs, so that they cannot wait; the last two have no handlers
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP}
_AT_ONCE = {*_FAULTS, signal.SIGKILL, signal.SIGSTOP}

#: SIGINT last: it is the last to be given back, and no other interrupts that
_NUMBERS = (*sorted(set(signal.Signals) - _AT_ONCE - {signal.SIGINT}), signal.SIGINT)

_active: _Hold | None = None

#: more than a ``struct sigaction`` of any system has
_ACTION_BYTES = 1024


class _Action:
    """What the system does at a signal now: a handler that is not Python's too, and the flags of ``signal.siginterrupt``."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._kept = ctypes.create_string_buffer(_ACTION_BYTES)
        try:
            self._call: Any = ctypes.CDLL(None).sigaction
            is_ours = not self._call(number, None, self._kept)
        except (OSError, TypeError, AttributeError):  # a system without: Python's handler is all that is known
            is_ours = False
        if not is_ours:
            self._call = None

    @property
    def is_default(self) -> bool:
        """Whether it is what happens in a program that has no handler."""
        # the address of the handler comes first, and is 0 then
        return self._call is None or not any(self._kept.raw[: ctypes.sizeof(ctypes.c_void_p)])

    def put_back(self) -> None:
        """Let the system do that again."""
        if self._call is not None:
            self._call(self._number, self._kept, None)


class _Hold:
    """The time in which signals wait."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._replaced: dict[int, Any] = {}
        #: what the system holds of each, which Python's handler tells only in part
        self._actions: dict[int, _Action] = {}
        self._noted: list[int] = []
        self._asked_s: float | None = None
        #: the program was interrupted in the middle, because it was asked for twice
        self.abandoned = False

    def begin(self) -> None:
        global _active
        try:
            _active = self
            for number in _NUMBERS:
                handler = signal.getsignal(number)
                if callable(handler) or (number in _ENDING and handler is signal.SIG_DFL):
                    self._actions[number] = _Action(number)
                    self._replaced[number] = handler
                    signal.signal(number, self._note_signal)
        except BaseException:  # of a handler that is not replaced yet
            self.end()
            raise

    def end(self) -> None:
        """Give the signals back to the program; those that came meanwhile now take effect, in their order."""
        global _active
        raised: list[BaseException] = []
        try:
            while self._replaced:
                try:
                    while self._replaced:
                        self._give_back(next(iter(self._replaced)))
                except BaseException as error:  # of a handler that is back already
                    raised.append(error)
        finally:
            if _active is self:
                _active = None
            noted, self._noted, self._asked_s = self._noted, [], None
            try:
                _take_effect(noted)
            finally:
                if raised:
                    raise raised[-1]

    def _give_back(self, number: int) -> None:
        global _active
        if _active is self and len(self._replaced) == 1:
            # not later: what the last one interrupts would leave a hold behind that nobody ends
            _active = None
        if signal.getsignal(number) == self._note_signal:
            try:
                signal.signal(number, self._replaced[number])
            finally:
                self._actions[number].put_back()
        del self._replaced[number]

    def _note_signal(self, number: int, frame: Any) -> None:
        if _active is not self or os.getpid() != self._process:
            # saving is over, or goes on in the process that this one was forked from
            self._give_back(number)
            signal.raise_signal(number)
            return
        if number not in self._noted:
            self._noted.append(number)
        if number not in _ENDING:
            return
        now = time.monotonic()
        if self._asked_s is None:
            self._asked_s = now
            log.info(
                f"{signal.Signals(number).name} came while the profiler works on a window: it takes effect when that is done; "
                f"sent again after {PATIENCE_S:g} s, at once."
            )
        elif now - self._asked_s >= PATIENCE_S:
            self._at_once(number, frame)

    def _at_once(self, number: int, frame: Any) -> None:
        handler = self._replaced[number]
        self._noted.remove(number)
        if not callable(handler):
            if self._actions[number].is_default:
                # as the last line of a process that says nothing any more
                log.warning(f"{signal.Signals(number).name} came again: the process ends, and what was not saved yet is lost.")
            self._give_back(number)
            signal.raise_signal(number)
            return
        try:
            handler(number, frame)
        except BaseException:  # the script's own handler: whatever it raises goes on
            self.abandoned = True
            raise


def _take_effect(noted: list[int]) -> None:
    """Deliver signals again, all of them, even if the program's handler raises."""
    if noted:
        try:
            signal.raise_signal(noted[0])
        finally:
            _take_effect(noted[1:])


def _current_hold() -> _Hold | None:
    """The hold of the calling thread."""
    return _active if threading.current_thread() is threading.main_thread() else None


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Let signals wait until the end of the ``with`` block; inside of another one, until the end of that one.

    On any other thread than the main one there is nothing to do: no handler of Python runs there.
    """
    if _active is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    hold = _Hold()
    hold.begin()
    try:
        yield
    finally:
        hold.end()


class allow_signals:
    """Lets signals take effect inside of :func:`hold_signals`, those that wait too: around what can be broken off without a loss.

    Not a generator: one that is interrupted while it is left goes on when it is thrown away, and would hold signals then.
    """

    def __init__(self) -> None:
        self._hold = _current_hold()

    def __enter__(self) -> None:
        if self._hold is not None:
            self._hold.end()

    def __exit__(self, *_: object) -> None:
        if self._hold is not None:
            self._hold.begin()


def deliver_signals() -> None:
    """Let the signals take effect that are waiting: everything that they could have destroyed is safe."""
    hold = _current_hold()
    if hold is not None and hold._noted:
        hold.end()
        hold.begin()


def of_the_program(error: BaseException) -> bool:
    """Whether an exception comes out of the program's own handler of a signal: it is the program's, wherever it was raised."""
    handlers = [signal.getsignal(number) for number in _NUMBERS]
    if _active is not None:
        handlers += _active._replaced.values()
    codes = {code for handler in handlers if (code := _handler_code(handler)) is not None}
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


def _handler_code(handler: Any) -> CodeType | None:
    """What runs when a handler is called; None for one that is not written in Python, and for ours."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler) or isinstance(getattr(handler, "__self__", None), _Hold):
        return None
    code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def is_abandoned() -> bool:
    """Whether what is being raised comes of asking twice, so that nothing more is to be done."""
    hold = _current_hold()
    return hold is not None and hold.abandoned
