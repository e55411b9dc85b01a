"""One cause of a changed step, and all of a comparison."""

from __future__ import annotations

from dataclasses import dataclass

#: the same calls on inputs of the same shapes and types take another time
SPEED = "speed"
#: an operator is called more often, or less often
CALLS = "calls"
#: inputs have other shapes
SHAPES = "shapes"
#: inputs have another data type
TYPES = "types"
#: at one place other operators: renamed, fused or split
REPLACED = "replaced"
#: operators that one side alone has, in the place of nothing
ADDED, REMOVED = "added", "removed"
#: backward computes something of forward again, or does so no more
RECOMPUTED = "recomputed"
#: the optimizer is of another class, or does its work in another way (for each parameter, foreach, fused)
OPTIMIZER = "optimizer"
#: waiting for the data loader
LOADER = "loader"
#: the host waits for the device, or the device for a host that did
SYNCHRONISATION = "synchronisation"
#: communication that nothing hides
COMMUNICATION = "communication"
#: no operator runs: Python, or on a device the host that comes too late
GAPS = "gaps"
#: the device is idle for a reason of its own
IDLE = "idle"
KINDS = (
    SPEED, CALLS, SHAPES, TYPES, REPLACED, ADDED, REMOVED, RECOMPUTED, OPTIMIZER, LOADER, SYNCHRONISATION, COMMUNICATION, GAPS,
    IDLE,
)  # fmt: skip

#: whether a step does other work, or the same in another time; unknown where shapes of inputs were not recorded
CHANGED, SAME, UNKNOWN = "changed", "same", "unknown"

#: what is a smaller share of the largest difference does not matter, chance or not
_LEAST_SHOWN = 0.01
#: on which side of the step its time is looked for
HOST, DEVICE = "host", "device"


@dataclass(frozen=True)
class Cause:
    """What one cause makes of a step, per step.

    Attributes:
        kind: one of ``KINDS``.
        part: the part of the step that most of the difference lies in: a column of ``step_times``, such as "forward_ns".
        phase: what the training thread does there, or did when it launched it: "forward", "backward" ...; several are joined by
            " and ".
        names: the operators (tasks, collectives) that it is about, those that matter most first; at most a handful.
        modules: in which modules, where these were recorded.
        path: the operators around the first of ``names``, from the outermost one on, itself the last; empty where that differs.
        before_ns, after_ns: time of it.
        before_calls, after_calls: how many calls; 0 of what has none.
        error_ns: half of the interval of 95 % of the difference; None where a side has too few steps to tell.
        share: of the change of the step; None where the step hardly changed.
        work: CHANGED, SAME or UNKNOWN.
        before_text, after_text: what is different: shapes, data types, names of operators, the optimizer; may be empty.
        idle_cause: why the device idles: one of ``analysis.device.idle.CAUSES``; empty of other causes, and of several reasons.
        sentence: all of that for whoever reads it.
    """

    kind: str
    part: str
    phase: str
    names: tuple[str, ...]
    modules: tuple[str, ...]
    path: tuple[str, ...]
    before_ns: float
    after_ns: float
    before_calls: float
    after_calls: float
    error_ns: float | None
    share: float | None
    work: str
    before_text: str = ""
    after_text: str = ""
    idle_cause: str = ""
    sentence: str = ""

    @property
    def difference_ns(self) -> float:
        """After less before."""
        return self.after_ns - self.before_ns

    @property
    def is_certain(self) -> bool:
        """Whether it changed beyond what chance explains."""
        return self.error_ns is not None and abs(self.difference_ns) > self.error_ns


@dataclass(frozen=True)
class Causes:
    """What explains the change of a step.

    The time of a step on its critical side: of the host, whose phases add up to the step; of the device where the device runs
    behind the host, whose parts add up to its period. Each nanosecond of it is of one call, task or gap, and so of one cause.

    Attributes:
        side: HOST or DEVICE.
        causes: the largest first; with ``rest_ns`` they add up to ``change_ns``.
        change_ns: by how much the step became longer: the mean of the usual steps.
        rest_ns: the difference of what no cause names: what is too small to be told from chance, and what has no place.
        explained: the share of the change that the causes beyond chance make up, 0 to 1: 1 less what they miss it by, too much or
            too little; None where the step hardly changed, or too few steps tell chance from change.
    """

    side: str
    causes: tuple[Cause, ...]
    change_ns: float
    rest_ns: float
    explained: float | None

    def count_others(self, limit: int) -> tuple[int, int | None]:
        """How many causes are not among those to show, and how many of them are beyond chance; None where nothing tells that.

        Args:
            limit: as of ``shown_first``.
        """
        shown = self.shown_first(limit)
        certain = sum(cause.is_certain for cause in self.causes) - sum(cause.is_certain for cause in shown)
        is_told = any(cause.error_ns is not None for cause in self.causes)
        return len(self.causes) - len(shown), certain if is_told else None

    def shown_first(self, limit: int) -> list[Cause]:
        """The causes to show, the largest first: those beyond chance, or where none of these matters all that changed.

        Args:
            limit: how many at most.
        """
        least_ns = _LEAST_SHOWN * max((abs(cause.difference_ns) for cause in self.causes), default=0.0)
        certain = [cause for cause in self.causes if cause.is_certain and abs(cause.difference_ns) >= least_ns]
        return (certain or [cause for cause in self.causes if cause.difference_ns])[:limit]
