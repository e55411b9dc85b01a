"""Signals that ask a bench to end: which of them do, and what they do not break off."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from steplens.bench.signals import hold_signals, leave_on_signals, signal_behind


def ask(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    # Python runs handlers between two instructions
    time.sleep(0.01)


@pytest.fixture(autouse=True)
def usual_handlers() -> Iterator[None]:
    """What a terminal starts has them; the tests themselves may be started by nohup, or behind a shell."""
    usual = {signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


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


def end_by(first: signal.Signals, second: signal.Signals | None = None) -> int:
    """What ``signal_behind`` says of signals, of which the second one comes while a program is ended."""
    try:
        with leave_on_signals():
            try:
                with hold_signals():
                    ask(first)
            finally:
                if second is not None:
                    with hold_signals():
                        ask(second)
    except (KeyboardInterrupt, SystemExit) as ending:
        return signal_behind(ending)
    return 0


def test_the_first_signal_is_told_and_a_second_one_waits_for_nobody() -> None:
    assert end_by(signal.SIGINT) == signal.SIGINT and end_by(signal.SIGTERM) == signal.SIGTERM
    with pytest.raises(SystemExit):
        end_by(signal.SIGINT, signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        end_by(signal.SIGINT, signal.SIGINT)


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
