"""What a report is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from steplens.common.stand_ins import told_path

if TYPE_CHECKING:
    from steplens.comparison.comparison import Comparison
    from steplens.comparison.gate import Judgement


class ReportedSide(NamedTuple):
    """One side in words.

    Attributes:
        name: a version, or the path of what was recorded.
        description: how long a step is, and from what that is known.
    """

    name: str
    description: str


@dataclass(frozen=True)
class Reported:
    """A comparison as it is reported.

    Attributes:
        comparison: what ``compare_runs`` found.
        judgements: whether limits are kept; none where there are no limits.
        problems: sentences about sides with too few steps, or that were cut short.
        versions: both sides, where they are more than their recordings.
        counted: what more of would tell what cannot be told; recordings where it is empty.
        doubts: sentences about what makes it doubtful, beside those of the comparison.
        medians: a sentence that the change is not that of the step times of both sides; empty where they say the same.
        explained: a sentence about the steps that parts and operators are of, where the verdict is of others.
    """

    comparison: Comparison
    judgements: Sequence[Judgement]
    problems: Sequence[str] = ()
    versions: tuple[ReportedSide, ReportedSide] | None = None
    counted: str = ""
    doubts: Sequence[str] = ()
    medians: str = ""
    explained: str = ""

    @property
    def all_doubts(self) -> list[str]:
        """Sentences about what makes it doubtful."""
        return [*self.doubts, *self.comparison.doubts]

    @property
    def named_sides(self) -> tuple[ReportedSide, ReportedSide]:
        """The earlier and the later side."""
        from steplens.comparison.reports.sentences import describe_side

        if self.versions is not None:
            return self.versions
        before, after = self.comparison.before, self.comparison.after
        return (
            ReportedSide(told_path(before.path), describe_side(before)),
            ReportedSide(told_path(after.path), describe_side(after)),
        )

    @property
    def verdict_text(self) -> str:
        """What became of the step time, in a sentence, or why that cannot be told."""
        from steplens.comparison.reports.sentences import step_sentence, verdict_sentence

        if self.counted and self.comparison.step is not None:
            return step_sentence(self.comparison.step, self.counted)
        return verdict_sentence(self.comparison)
