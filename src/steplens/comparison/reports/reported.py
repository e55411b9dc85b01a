"""What a report is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steplens.comparison.comparison import Comparison
    from steplens.comparison.gate import Judgement


@dataclass(frozen=True)
class Reported:
    """A comparison as it is reported.

    Attributes:
        comparison: what ``compare_runs`` found.
        judgements: whether limits are kept; none where there are no limits.
        problems: sentences about sides with too few steps, or that were cut short.
    """

    comparison: Comparison
    judgements: Sequence[Judgement]
    problems: Sequence[str]
