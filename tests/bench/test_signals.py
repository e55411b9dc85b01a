"""Signals that ask a bench to end: which of them do, and what they do not break off."""

from __future__ import annotations

import os
import signal
import time

import pytest

from steplens.bench.signals import hold_signals, leave_on_signals


def ask(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    # Python runs handlers between two instructions
    time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_leaving_by_an_exception(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended, leave_on_signals():
        ask(number)
    assert ended.value.code == 128 + number and signal.getsignal(number) == before


def test_what_nohup_starts_lives_on() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with leave_on_signals():
            ask(signal.SIGHUP)
            with hold_signals():
                ask(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("number", "exception"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_signals_that_wait(number: signal.Signals, exception: type[BaseException]) -> None:
    done = []

    def clean_up() -> None:
        with hold_signals():
            ask(number)
            ask(number)
            done.append("cleaned up")
        done.append("went on")

    with leave_on_signals(), pytest.raises(exception):
        clean_up()
    assert done == ["cleaned up"]
