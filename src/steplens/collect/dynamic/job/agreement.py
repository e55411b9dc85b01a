"""At which step a capture begins, decided once for all processes of a job.

Whoever first finds a new request at the end of one of its steps decides for everybody, from the steps that all others have
published. A step that somebody may already have passed is not chosen, so every process learns of the decision before it gets
there. A process that does not step holds nobody up: its step number is only ever too low to matter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from steplens.collect.dynamic.job.process import Process
from steplens.collect.dynamic.plan import EDIT, NEVER, NEXT

#: a decision that leaves the step to each process, because their step numbers have nothing to do with each other
EACH = -2

#: processes whose step numbers differ by more do not step together
_TOGETHER = 64
#: a process that has not stepped for so long does not count when asking that
_STEPPED_LATELY_NS = 60_000_000_000


@dataclasses.dataclass(frozen=True)
class Seat:
    """What a process has published.

    Attributes:
        process: who.
        rank: in the job.
        step: the number of steps it has ended, so the step that runs; -1 before the first.
        step_ns: when that was, on the machine's monotonic clock.
        deciding: the step at whose beginning it is about to look at the decisions; -1 when it is not.
        busy_until: the step at which its capture ends; 0 without one.
        state: index of its state, see ``shared_board.STATES``.
    """

    process: Process
    rank: int
    step: int
    step_ns: int
    deciding: int
    busy_until: int
    state: int

    @property
    def first_free(self) -> int:
        """The first step at whose beginning it can still hear of a decision."""
        return self.step if self.deciding == self.step else self.step + 1


@dataclasses.dataclass(frozen=True)
class Decision:
    """What all processes do about a request.

    Attributes:
        number: counts up.
        id: of the request.
        origin: of the request.
        document: the configuration, so that all use the same one.
        start: the first step; :data:`EACH` leaves it to each process.
        stop: the first step after it.
        refusal: why there is no capture; empty if there is.
        supersedes: ids of requests that have not begun and will not.
    """

    number: int
    id: str
    origin: str
    document: Mapping[str, Any]
    start: int
    stop: int
    refusal: str = ""
    supersedes: tuple[str, ...] = ()


def choose_start_step(
    origin: str,
    start_step: int,
    steps: int,
    own_step: int,
    own_busy: int,
    others: Sequence[Seat],
    earlier: Sequence[Decision],
    now_ns: int,
) -> tuple[int, str, tuple[str, ...]]:
    """Choose the step at which a capture begins.

    Args:
        origin: of the request; a saved file replaces an earlier one that has not begun, a trigger waits its turn.
        start_step: ``NEXT`` or a step.
        steps: how many steps the capture takes.
        own_step: the step that begins now in the process that decides.
        own_busy: where the capture of that process ends; 0 without one.
        others: the other living processes.
        earlier: decisions so far.
        now_ns: the machine's monotonic clock.

    Returns:
        the first step, why there is none (empty if there is), and the ids of the requests it replaces.
    """
    stepping = [seat for seat in others if seat.step >= 0]
    lately = [seat.step for seat in stepping if now_ns - seat.step_ns < _STEPPED_LATELY_NS]
    apart = max([own_step, *lately]) - min([own_step, *lately]) > _TOGETHER
    # One that hangs far from here, perhaps since it was restarted, is nobody to wait for.
    stepping = [seat for seat in stepping if seat.step in lately or abs(seat.step - own_step) <= _TOGETHER]
    first = own_step if apart else max([own_step, *(seat.first_free for seat in stepping)])
    replaced = {id for decision in earlier for id in decision.supersedes}
    waiting = [
        item for item in earlier if not item.refusal and item.start != EACH and item.id not in replaced and item.stop > first
    ]
    superseded = tuple(item.id for item in waiting if origin == EDIT == item.origin and item.start >= first)
    busy = bool(own_busy) or any(seat.busy_until for seat in stepping)
    taken = [
        (item.start, item.stop)
        for item in waiting
        if item.id not in superseded
        # one that nobody records although its time has come has failed, and takes no steps from others
        and (item.start >= first or busy or any(seat.step <= item.start for seat in stepping))
    ]
    taken += [(0, until) for until in (own_busy, *(seat.busy_until for seat in stepping)) if until > first]
    if start_step == NEVER:
        return 0, "start_step is 0, so nothing is captured", superseded
    if start_step == NEXT:
        if apart:
            return EACH, "", superseded
        for begin, end in sorted(taken):
            if first < end and first + steps > begin:
                first = end
        return first, "", superseded
    if start_step < first:
        reached = max([own_step, *(seat.step for seat in stepping)]) if not apart else own_step
        return 0, f"start_step {start_step} is not after the step that runs, which is {reached}", superseded
    for begin, end in sorted(taken):
        if start_step < end and start_step + steps > begin:
            steps_text = f"steps {begin} to {end - 1} are" if begin else f"everything up to step {end - 1} is"
            return 0, f"{steps_text} taken by another capture", superseded
    return start_step, "", superseded
