"""The action table: what a profiler does between one step and the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from steplens.collect.common import interrupts


class ProfilerAction(Enum):
    """What a profiler does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


NONE, WARMUP, RECORD, SAVE = ProfilerAction
RECORDING = (RECORD, SAVE)
EXIT = None

WARN = "warn"
INIT = "init_trace"
WARM = "warmup_trace"
START = "start_trace"
STOP = "stop_trace"
FINALIZE = "finalize_trace"
READY = "trace_ready"
DELETE = "delete_prof_dir"

#: (previous action, current action) -> calls, in order
TRANSITIONS: dict[tuple[ProfilerAction, ProfilerAction | None], tuple[str, ...]] = {
    (NONE, NONE): (),
    (NONE, WARMUP): (INIT, WARM),
    (NONE, RECORD): (INIT, START),
    (NONE, SAVE): (INIT, START),
    (WARMUP, NONE): (WARN, START, STOP, FINALIZE),
    (WARMUP, WARMUP): (),
    (WARMUP, RECORD): (START,),
    (WARMUP, SAVE): (START,),
    (RECORD, NONE): (WARN, STOP, FINALIZE),
    (RECORD, WARMUP): (WARN, STOP, FINALIZE),
    (RECORD, RECORD): (),
    (RECORD, SAVE): (),
    (SAVE, NONE): (STOP, FINALIZE, READY),
    (SAVE, WARMUP): (STOP, FINALIZE, READY, INIT, WARM),
    (SAVE, RECORD): (STOP, FINALIZE, READY, INIT, START),
    (SAVE, SAVE): (STOP, FINALIZE, READY, INIT, START),
    (NONE, EXIT): (),
    (WARMUP, EXIT): (WARN, FINALIZE, DELETE),
    (RECORD, EXIT): (WARN, STOP, FINALIZE, READY),
    (SAVE, EXIT): (WARN, STOP, FINALIZE, READY),
}


def to_action(value: Any) -> ProfilerAction:
    """The action that a schedule returned: a member of ours, or of ``torch.profiler`` with the same name.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(value, ProfilerAction):
        return value
    member = ProfilerAction.__members__.get(getattr(value, "name", ""))
    if member is None:
        raise TypeError(f"the schedule returned {value!r}, which is not a ProfilerAction")
    return member


#: how the text begins of a stop that cut a step short
STOPPED_INSIDE = "The profiler stopped in a"


def warning_text(previous: ProfilerAction, current: ProfilerAction | None) -> str:
    """What the ``warn`` call of a transition says."""
    if current is None:
        if previous is WARMUP:
            return "The profiler stopped during warmup: nothing was recorded, the run directory is removed."
        return f"{STOPPED_INSIDE} {previous.name} step: the window is shorter than the schedule says."
    return f"Incorrect schedule: {previous.name} followed by {current.name}."


class ActionController:
    """Carries out transitions.

    Args:
        calls: what each call name of :data:`TRANSITIONS` does; ``warn`` takes the text, the others nothing.
        failed: gets the name and the exception of a call that raised; the calls after it still run,
            so that a failing start does not keep a window open.

    An exception that is no ``Exception`` is an interrupt, and not the call's own: the call is made once more, which takes it up
    where it was left. The interrupt is raised when the window is closed, before another one opens.
    """

    def __init__(self, calls: Mapping[str, Callable[..., None]], failed: Callable[[str, Exception], None]) -> None:
        self._calls = calls
        self._failed = failed

    @staticmethod
    def has_work(previous: ProfilerAction, current: ProfilerAction | None) -> bool:
        """Whether the table has calls for a step with action ``previous`` followed by one with ``current``."""
        return bool(TRANSITIONS[previous, current])

    def transit(self, previous: ProfilerAction, current: ProfilerAction | None) -> None:
        """Do what the table says for a step with action ``previous`` followed by one with ``current``."""
        interrupt: BaseException | None = None
        for name in TRANSITIONS[previous, current]:
            if name == INIT:
                if interrupt is not None:
                    break
                interrupts.deliver_signals()
            arguments = (warning_text(previous, current),) if name == WARN else ()
            try:
                self._call_action(name, arguments)
            except BaseException as error:  # an interrupt: the actions behind it come first
                if interrupts.is_abandoned():
                    raise
                interrupt = error
                self._call_action(name, arguments)
        if interrupt is not None:
            raise interrupt

    def _call_action(self, name: str, arguments: tuple[str, ...]) -> None:
        try:
            self._calls[name](*arguments)
        except Exception as exception:  # the boundary to Kineto: the calls after this one still run
            if interrupts.of_the_program(exception):
                raise
            self._failed(name, exception)
