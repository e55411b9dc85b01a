"""Signals that ask a bench to end: an exception leaves its round, so that programs are ended and checkouts removed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

_LEAVING = (signal.SIGTERM, signal.SIGHUP)
_ENDING = (signal.SIGINT, *_LEAVING)
#: how what they end is left
_LEFT_BY = (KeyboardInterrupt, SystemExit)


@contextlib.contextmanager
def leave_on_signals() -> Iterator[None]:
    """Leave by an exception when this process is asked to end; with SIGINT Python does so by itself.

    A signal that is ignored stays so: what ``nohup`` starts lives on when the terminal is closed.
    """

    def leave_on_signal(number: int, _: Any) -> None:
        raise SystemExit(exit_code_of(number))

    with _handle_signals(_LEAVING, leave_on_signal):
        yield


def exit_code_of(number: int) -> int:
    """What a process returns that a signal ended, as shells have it."""
    return 128 + number


def signal_behind(ending: KeyboardInterrupt | SystemExit) -> int:
    """The number of the signal that ended what ran.

    Raises:
        KeyboardInterrupt, SystemExit: it is the second one, which came while what the first one ended was tidied up.
    """
    if isinstance(ending.__context__, _LEFT_BY):
        raise ending
    return int(ending.code or 0) - exit_code_of(0) if isinstance(ending, SystemExit) else int(signal.SIGINT)


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Let signals wait until the end of the ``with`` block: for what would leave something behind if it were broken off."""
    noted: list[int] = []
    try:
        with _handle_signals(_ENDING, lambda number, _: noted.append(number)):
            yield
    finally:
        # several of them ask for the same
        if noted:
            signal.raise_signal(noted[0])


@contextlib.contextmanager
def _handle_signals(numbers: tuple[signal.Signals, ...], handler: Any) -> Iterator[None]:
    """Let signals that are not ignored be handled so; on another thread than the main one no handler runs and nothing is done."""
    before: dict[signal.Signals, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in numbers:
                present = signal.getsignal(number)
                # None: a handler that is not Python's could not be put back
                if present is not signal.SIG_IGN and present is not None:
                    before[number] = present
                    signal.signal(number, handler)
        yield
    finally:
        for number, present in before.items():
            signal.signal(number, present)
