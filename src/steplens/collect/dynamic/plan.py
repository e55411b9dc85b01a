"""What a configuration asks for, and what has become of it: the words that the processes of a job share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

#: a start step that means "the next one"
NEXT = -1
#: a start step that means "do not capture"
NEVER = 0

#: where a request comes from
EDIT = "edit"
TRIGGER = "trigger"
CALL = "start"

# what has become of a request in one process, in the usual order
SEEN = "seen"
SCHEDULED = "scheduled"
RECORDING = "recording"
SAVING = "saving"
DONE = "done"
FAILED = "failed"
REFUSED = "refused"
MISSED = "missed"
SUPERSEDED = "superseded"
#: nothing more happens to a request in one of these
ENDED = frozenset({DONE, FAILED, REFUSED, MISSED, SUPERSEDED})


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a configuration asks one process to do.

    Attributes:
        start_step: :data:`NEXT`, :data:`NEVER`, or the step to begin at.
        steps: how many steps it takes, warm-up steps included.
        warmup: how many of them warm up.
        refusal: why this process takes no part; empty if it does.
        warnings: what was wrong with the configuration and is reset, a sentence each.
        settings: for :meth:`Form.capture`.
    """

    start_step: int
    steps: int
    warmup: int = 0
    refusal: str = ""
    warnings: tuple[str, ...] = ()
    settings: Any = None


@dataclasses.dataclass(frozen=True)
class Identity:
    """A process within its job.

    Attributes:
        rank: in the job; -1 when it is no distributed job.
        world_size: how many ranks there are, if known.
        group: the same text in the processes that must record the same steps, and in no other.
    """

    rank: int
    world_size: int | None
    group: str


class Capture(Protocol):
    """A recording under way. It may raise; the training goes on."""

    @property
    def directory(self) -> Path | None:
        """Where it goes, as far as known."""

    def step(self) -> None:
        """A step has ended; called once per step of the plan. The last call ends the recording."""

    def finish(self) -> Outcome:
        """End it, also before its last step."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a capture left.

    Attributes:
        directory: the run directory; None if there is none.
        problem: why its data is not safe; empty if it is.
    """

    directory: Path | None
    problem: str = ""


class Form(Protocol):
    """A framework: its configuration file and how it records. Nothing else here knows frameworks."""

    name: str

    def template(self) -> Mapping[str, Any]:
        """What a new configuration file holds."""

    def plan(self, document: Mapping[str, Any], rank: int) -> Plan:
        """Read a configuration; must accept any JSON object."""

    def identity(self) -> Identity:
        """Who this process is; asked at first, and when it first steps: by then a job has set itself up."""

    def obstacle(self) -> str:
        """Why nothing can be recorded in this process now; empty if it can."""

    def capture(self, plan: Plan, step: int) -> Capture:
        """Begin to record at the start of ``step``. May raise."""


@dataclasses.dataclass
class Request:
    """One configuration on its way through one process.

    Attributes:
        id: the same in all processes.
        origin: :data:`EDIT`, :data:`TRIGGER` or :data:`CALL`.
        document: the configuration.
        state: :data:`SEEN` and what follows it.
        reason: why it was refused, missed or failed.
        start_step: the first step, once the processes have agreed on it.
        warmup: how many steps from there on warm up; what follows is recorded.
        stop_step: the step in which nothing is recorded any more.
        seen_ns: when this process learned of it, Unix time.
        began_ns: when recording began, Unix time; 0 before.
        ended_ns: when nothing more happened to it, Unix time; 0 before.
        result: the run directory.
        warnings: what was reset in the configuration.
    """

    id: str
    origin: str
    document: Mapping[str, Any]
    state: str = SEEN
    reason: str = ""
    start_step: int = 0
    warmup: int = 0
    stop_step: int = 0
    seen_ns: int = 0
    began_ns: int = 0
    ended_ns: int = 0
    result: str = ""
    warnings: tuple[str, ...] = ()
    plan: Plan | None = None
    planned_for: int | None = None

    def span(self, start: int, plan: Plan) -> None:
        """Set the steps it takes."""
        self.start_step, self.warmup, self.stop_step = start, plan.warmup, start + plan.steps

    def recorded_steps(self) -> str:
        """The steps that are recorded, as words."""
        return steps_text(self.start_step + self.warmup, self.stop_step)

    def record(self) -> dict[str, Any]:
        """What others may know about it."""
        hidden = {"document", "plan", "planned_for"}
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in hidden}


def steps_text(start: int, stop: int) -> str:
    """The steps from ``start`` to before ``stop``, as words."""
    return f"step {start}" if stop == start + 1 else f"steps {start} to {stop - 1}"
