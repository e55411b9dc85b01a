"""Threads of the program that ask to be recorded, beside the one that records.

Kineto records the thread that starts a window and what PyTorch runs on its behalf. A thread that asks joins the window
that is open, and every window that opens later, until it takes that back or ends. Only a thread itself can join and leave,
so each of them gets control through :func:`sys.setprofile`, at the next Python call or return of its own. That costs
something at every call, so it is only so while a profiler runs, from its start to its stop. A thread that asked before
sleeps until then, and is woken by the first module that it calls. A window that opens while a thread sleeps has to record
all threads of the process.

A window must not end while another thread is inside an operator that it records: PyTorch would read and free what the
thread still writes. So the end of a window waits until every thread has left or rests in a call that cannot reach PyTorch.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from steplens.collect.common import clock, log
from steplens.collect.common.health import ERROR, INFO, WARNING, Health
from steplens.collect.torch_internals import torch_threads

#: how long the end of a window waits for a thread that is inside an operator
WAIT_S = 2.0
_PAUSE_S = 0.0002

#: built-in functions of these modules wait, and call no operator
_WAITING = frozenset({"time", "_thread", "_queue", "select", "_socket", "_ssl", "posix", "_io", "_multiprocessing"})

_PACKAGE = __name__.partition(".")[0] + "."

#: what findings call the data of the threads
_CHILD_OPERATORS = "operator calls"


class StuckThreadError(RuntimeError):
    """A thread did not come out of an operator, so that the window cannot end."""


@dataclass(eq=False)
class Joinable:
    """A window that threads may join.

    Attributes:
        options: what it records of every thread.
        health: of its profiler.
        all_threads: it records every thread of the process anyway.
        owner: the thread that records it.
        process: the process it is in.
        joined: native ids of the threads that joined it, in order.
        waited_ns: how long its end waited for them.
    """

    options: Mapping[str, bool]
    health: Health
    all_threads: bool
    owner: int = field(default_factory=threading.get_ident)
    process: int = field(default_factory=os.getpid)
    joined: list[int] = field(default_factory=list)
    waited_ns: int = 0


#: stands in place of the window while no profiler runs
_NOBODY = Joinable({}, Health(), all_threads=False)


class _State:
    """What all threads share."""

    def __init__(self) -> None:
        #: held while a thread joins, and while a window opens or ceases to be joinable
        self.lock = threading.Lock()
        self.window: Joinable | None = _NOBODY
        #: profilers between their start and their stop, and the hook that wakes threads for them
        self.running = 0
        self.waker: Any = None
        self.members: weakref.WeakSet[_Member] = weakref.WeakSet()
        #: windows that could not end, and what ends them
        self.abandoned: list[tuple[Joinable, Callable[[], Any]]] = []


_state = _State()
_own = threading.local()


class _Member:
    """A thread that asked; only its thread keeps it alive, so that both end together."""

    def __init__(self, calls: torch_threads.ThreadCalls | None) -> None:
        self._calls = calls
        self.native_id = threading.get_native_id()
        #: whether it gets control at calls and returns
        self.controlled = False
        #: the window that records it, and the last one that it has followed
        self.window: Joinable | None = None
        self._followed: Joinable | None = None
        #: the C function that it is in
        self._inside: Any = None
        #: Python calls around it; the least number of them so far, where its own loop is; C calls around it
        self._depth = 0
        self._home = 0
        self._c_depth = 0
        #: the open ranges of the user, each with the window that records it
        self._ranges: list[Joinable | None] = []
        self._enter, self._exit = _range_codes()

    def take_control(self) -> bool:
        """Get control at the thread's calls and returns, unless another profiler of Python has it."""
        now = sys.getprofile()
        self.controlled = self._calls is not None and (now is None or now == self._on_event)
        if self.controlled and now is None:
            self._depth = self._home = self._c_depth = 0
            self._inside = None
            frame: FrameType | None = sys._getframe()
            while frame is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
                self._depth += 1
                frame = frame.f_back
            self._home = self._depth
            sys.setprofile(self._on_event)
        return self.controlled

    def give_back_control(self) -> None:
        """Undo :meth:`take_control`."""
        if sys.getprofile() == self._on_event:
            sys.setprofile(None)
        self.controlled = False

    def rests(self) -> bool:
        """Whether the thread waits in a call after which it gets control before any operator; for other threads to ask."""
        function = self._inside
        if function is None:
            return False
        module = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
        return module in _WAITING

    def join(self) -> bool:
        """Be recorded by the open window, if there is one that does not record this thread anyway."""
        with _state.lock:
            window = self._followed = _state.window
            if window is None or window is _NOBODY or window.all_threads or self._calls is None:
                return False
            if window.owner == threading.get_ident() or window.process != os.getpid() or not self._calls.join():
                return False
            self.window = window
            if self.native_id not in window.joined:
                window.joined.append(self.native_id)
            return True

    def leave(self) -> None:
        """Be no longer recorded."""
        if self.window is not None and self._calls is not None:
            self._calls.leave()
        self.window = None

    def _follow_window(self, at_home: bool) -> None:
        """Leave the window that has ended, and join the one that is open.

        What was begun while one window recorded must not end while another does: PyTorch would write its end into the data
        of the first, which is gone. So a thread joins only in its own loop, and while no range is open that was recorded.
        """
        try:
            self.leave()
            if _state.window is _NOBODY:
                self.give_back_control()
            elif _state.window is None:
                self._followed = None
            elif at_home and not any(window is not None for window in self._ranges):
                self.join()
        except Exception as exception:  # it would come out of whatever the thread calls
            self._followed = _state.window
            log.report_failure("recording a child thread", exception)

    def _on_event(self, frame: FrameType, event: str, argument: Any) -> None:
        changed = _state.window is not self._followed
        if event == "call":
            self._inside = None
            if changed:
                self._follow_window(self._depth <= self._home and not self._c_depth)
            self._depth += 1
            code = frame.f_code
            if code is self._enter:
                self._ranges.append(self.window)
            elif code is self._exit and self._ranges:
                self._ranges.pop()
        elif event == "c_call":
            if changed:
                self._follow_window(self._depth <= self._home and not self._c_depth)
            self._c_depth += 1
            self._inside = argument
        else:
            self._inside = None
            if event == "return":
                self._depth -= 1
                self._home = min(self._home, self._depth)
            else:
                self._c_depth = max(0, self._c_depth - 1)
            if changed:
                self._follow_window(False)


def _range_codes() -> tuple[CodeType, CodeType]:
    """What ``record_function`` runs when a range begins and ends."""
    from torch.autograd.profiler import record_function

    return record_function.__enter__.__code__, record_function.__exit__.__code__


# --- for threads


def enable_thread(options: Mapping[str, bool]) -> None:
    """Let the calling thread be recorded, by the window that is open and those that open later.

    Args:
        options: what the caller wants recorded of it; a window records all its threads alike, so that more than its own
            options cannot be had, which its health says.
    """
    member: _Member | None = getattr(_own, "member", None)
    if member is None:
        member = _own.member = _Member(torch_threads.load_thread_calls())
        _state.members.add(member)
    if not _state.running:
        return
    controlled = member.take_control()
    window = _state.window
    if window is None or window is _NOBODY or window.process != os.getpid():
        return
    lacking = [name for name, is_on in options.items() if is_on and not window.options.get(name)]
    if lacking:
        names = " and ".join(lacking)
        message = f"A child thread asked for {names}, which the profiler object does not record: its options count."
        window.health.report("child_thread_options", INFO, message)
    if window.all_threads or window.owner == threading.get_ident() or member.window is window:
        return
    if controlled and member.join():
        return
    if not window.options.get("cpu", True):
        reason = "the window does not record the CPU"
    elif torch_threads.load_thread_calls() is None:
        reason = "this PyTorch does not let a thread join a window that is open"
    elif not controlled:
        reason = "another profiler of Python, or with_stack, has the thread"
    else:
        reason = "another profiler records the thread, or has ended the recording of the window"
    message = f"A child thread is not recorded in the window that is open, because {reason}."
    window.health.report("not_collected", WARNING, message, unsafe=_CHILD_OPERATORS)


def disable_thread() -> None:
    """Let the calling thread no longer be recorded."""
    member: _Member | None = getattr(_own, "member", None)
    if member is None:
        return
    member.give_back_control()
    member.leave()
    _state.members.discard(member)
    del _own.member


# --- for the profiler and its session


def profile_function() -> Any:
    """What the profile function of a thread that asked is a method of: a recorder of calls may take the thread from it."""
    return _Member._on_event


def profiler_starts() -> None:
    """Wake the threads that asked; a profiler runs from now on."""
    with _state.lock:
        _state.running += 1
        if _state.window is _NOBODY:
            _state.window = None
    _wake_threads()


def profiler_stops() -> None:
    """Undo :func:`profiler_starts`."""
    with _state.lock:
        _state.running = max(0, _state.running - 1)
        if not _state.running and _state.window is None:
            _state.window = _NOBODY
    if not _state.running:
        _let_sleep()


def _wake_threads() -> None:
    """Get control in the threads that sleep when they next call a module."""
    if _state.waker is None and torch_threads.load_thread_calls() is not None and _has_sleeping_threads():
        modules: Any = importlib.import_module("torch.nn.modules.module")
        _state.waker = modules.register_module_forward_pre_hook(_on_module)


def _let_sleep() -> None:
    waker, _state.waker = _state.waker, None
    if waker is not None:
        waker.remove()


def _on_module(_module: Any, _inputs: Any) -> None:
    member: _Member | None = getattr(_own, "member", None)
    if member is not None and not member.controlled:
        member.take_control()
        if not _has_sleeping_threads():
            _let_sleep()


def _has_sleeping_threads(besides: int = 0) -> bool:
    return any(not member.controlled for member in list(_state.members) if member.native_id != besides)


def needs_all_threads(with_stack: bool) -> bool:
    """Whether a window that opens now has to record every thread of the process, so that those that asked are among them.

    Args:
        with_stack: Kineto then takes the control of calls and returns away from every thread that exists.
    """
    if with_stack:
        lose_control()
    return _has_sleeping_threads(besides=threading.get_native_id())


def has_asked() -> bool:
    """Whether another thread than the calling one asked to be recorded."""
    calling = threading.get_native_id()
    return _has_sleeping_threads(besides=calling) or any(member.native_id != calling for member in list(_state.members))


def lose_control() -> None:
    """Of all threads that asked: who records calls of Python takes it. They get it again as those that sleep do."""
    for member in list(_state.members):
        member.controlled = False


def open_window(window: Joinable) -> None:
    """Let threads join a window that has begun to record."""
    window.owner = threading.get_ident()
    with _state.lock:
        _state.window = window


def close_window(window: Joinable, stop: Callable[[], Any]) -> None:
    """End a window when no other thread is inside an operator that it records.

    Args:
        window: what :func:`open_window` was given.
        stop: ends the recording.

    Raises:
        StuckThreadError: a thread did not come out in time. The recording of the calling thread has ended, but its data
            is not to be had; :func:`settle` ends it when the thread has come out.
    """
    with _state.lock:
        if _state.window is window:
            _state.window = None if _state.running else _NOBODY
    if _state.running:
        _wake_threads()
    begin = clock.monotonic_ns()
    deadline = time.monotonic() + WAIT_S
    while (inside := _threads_inside(window)) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    window.waited_ns = clock.monotonic_ns() - begin
    calls = torch_threads.load_thread_calls()
    if inside:
        _state.abandoned.append((window, stop))
        if calls is not None:
            calls.forget_callbacks()
        message = (
            f"Thread {inside[0].native_id} was inside an operator for {WAIT_S:g} s when the window was to end: "
            "its data is given up, because to take it could end the program."
        )
        window.health.add("save_failed", ERROR, message, unsafe="everything")
        raise StuckThreadError(message)
    if not window.joined or calls is None:
        stop()
        return
    try:
        with calls.quietly():
            stop()
    finally:
        calls.forget_callbacks()


def end_abandoned_windows() -> None:
    """End the windows that :func:`close_window` had to give up, if that is safe by now."""
    for entry in list(_state.abandoned):
        window, stop = entry
        if window.owner == threading.get_ident() and window.process == os.getpid() and not _threads_inside(window):
            _state.abandoned.remove(entry)
            stop()


def _threads_inside(window: Joinable) -> list[_Member]:
    """The threads that may be inside an operator that a window records."""
    return [member for member in list(_state.members) if member.window is window and not member.rests()]


def _after_fork() -> None:
    """A forked process has one thread, and no window that it could end."""
    global _state, _own
    member: _Member | None = getattr(_own, "member", None)
    if member is not None:
        member.give_back_control()
        member.leave()
    _let_sleep()
    _state = _State()
    _own = threading.local()


os.register_at_fork(after_in_child=_after_fork)
