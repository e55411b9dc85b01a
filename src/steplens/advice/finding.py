"""What a rule says: the cause, its proof, what a cure would save, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HIGH = "high"
MEDIUM = "medium"
LOW = "low"
LEVELS = (HIGH, MEDIUM, LOW)

#: kind of evidence: what other findings explain, which has been taken off the saving
EXPLAINED = "explained_elsewhere"

#: share of a step from which on a saving is of this level
_HIGH_SHARE = 0.10
_MEDIUM_SHARE = 0.03


@dataclass(frozen=True)
class Saving:
    """Time that a cure takes off a step, ns: at least, probably, at most."""

    low_ns: float
    likely_ns: float
    high_ns: float

    @staticmethod
    def up_to(high_ns: float) -> Saving:
        """A saving of which only the most is known; half of it is the guess that errs by the least."""
        return Saving(0.0, high_ns / 2, high_ns)


@dataclass(frozen=True)
class Stretch:
    """A stretch of time to look at on the timeline: of a rank, Unix ns."""

    rank: int
    step: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Evidence:
    """One measured fact.

    Attributes:
        what: key of its words in the catalogue.
        value: the figure.
        unit: "ns", "count", "bytes", "%", "GB/s", "MHz", or "" for a fact without a figure.
        steps: steps in which it was seen.
        places: operators, source lines or ranks, most important first.
        per_step: whether the figure is of a step: of one of median length, or ``of_mean``.
        places_ns: what each of the places takes per step, ns; empty where that is not said.
        places_count: how often a step has each of them; empty where that is not said.
        stretches: the longest stretch of each of them; empty where they are no such stretches.
        whole_ns: what the shares of the places are of; the figure where it is 0.
        other_places: how many places there are besides, and ``other_places_ns`` what these take per step where it is said:
            with them the places add up to the figure.
        other_most: the most that a single one of these has, in the unit of the figure; 0 where they are little of it together.
        of_mean: whether the figure and those of the places are of the mean step, as the bars and tables of the pages are.
    """

    what: str
    value: float
    unit: str
    steps: tuple[int, ...] = ()
    places: tuple[str, ...] = ()
    per_step: bool = True
    places_ns: tuple[float, ...] = ()
    places_count: tuple[float, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    whole_ns: float = 0.0
    other_places: int = 0
    other_places_ns: float = 0.0
    other_most: float = 0.0
    of_mean: bool = False


@dataclass(frozen=True)
class Finding:
    """One cause of lost time or growing memory.

    Attributes:
        rule: name of the rule, a key of the catalogue.
        confidence: how sure it is that the cause is named rightly, 0 to 1.
        evidence: what proves it.
        saving: None where no time is at stake.
        step_ns: how long a step takes, to weigh the saving; ``advise`` makes it the step time of the run.
        subject: what it is about where a rule can find several things (a rank, an operator).
        values: figures and names that the texts mention.
        urgency: level of a finding without saving.
        part: the column of step times that a cure shortens, such as "optimizer_ns"; empty where it may shorten all of a step.
            ``advise`` promises no more than the median of that part.
        framework: whose words its remedy is said in (``trace.building.framework``); empty where nothing tells.
        lies_in: the phases of the host in which the time lies that it is about; empty where that is ``part`` or not known.
        ranks: on which ranks of several it was seen; empty where on all.
        overlaps: ids of the findings that see time of the same part of the step: what one saves, another may not save again.
        at_stake: whether the remedy only finds the cause, and saves nothing itself: then no saving is likely, and what is at
            stake (its high end) tells how much it matters.
        recording_ns: of what would be saved, what recording the calls took, which the rule has taken off already: training
            without the profiler does not have it. None where it has not: ``advise`` does, by the share of it in ``part``.
        basis: key of the words for what the range rests on (``texts.Catalogue.bases``), where it is not the rule's.
        after_ns: id of one of ``overlaps`` -> what this finding is still likely to save, ns, once that one is cured; of those of
            which it can be told.
        first: ids of the findings that should be cured before this one, which save more by themselves.
    """

    rule: str
    confidence: float
    evidence: tuple[Evidence, ...]
    saving: Saving | None = None
    step_ns: float = 0.0
    subject: str = ""
    values: Mapping[str, str | int | float] = field(default_factory=dict)
    urgency: str = LOW
    framework: str = ""
    part: str = ""
    lies_in: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    overlaps: tuple[str, ...] = ()
    at_stake: bool = False
    recording_ns: float | None = None
    basis: str = ""
    after_ns: Mapping[str, float] = field(default_factory=dict)
    first: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Stable over runs of the same program: rule and subject."""
        return f"{self.rule}:{self.subject}" if self.subject else self.rule

    @property
    def share(self) -> float:
        """The likely saving as a share of the step; 0 without one."""
        return self.saving.likely_ns / self.step_ns if self.saving and self.step_ns > 0 else 0.0

    @property
    def level(self) -> str:
        """How much it matters: by ``weight_ns``, or what the rule says where no time is at stake."""
        if self.saving is None:
            return self.urgency
        share = self.weight_ns / self.step_ns if self.step_ns > 0 else 0.0
        return HIGH if share >= _HIGH_SHARE else MEDIUM if share >= _MEDIUM_SHARE else LOW

    @property
    def weight_ns(self) -> float:
        """Time that tells how much it matters: the likely saving, or what is at stake; 0 without one."""
        if self.saving is None:
            return 0.0
        return self.saving.high_ns if self.at_stake else self.saving.likely_ns

    @property
    def is_weighed(self) -> bool:
        """Whether anything tells how much it matters: where it may save time and no saving is likely, nothing does."""
        return self.saving is None or self.weight_ns > 0

    @property
    def rank(self) -> tuple[int, float]:
        """Sort key: the level, then the saving, largest first."""
        return LEVELS.index(self.level), -self.weight_ns
