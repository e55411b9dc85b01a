"""Limits that a change is not to exceed, as users write them: ``step>2%``. Known before anything is read."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from steplens.common.errors import SteplensError

STEP, MEMORY_PEAK, COMMUNICATION = "step", "memory_peak", "communication"
#: in front of the name of an operator, or of a device task
OPERATORS, KERNELS = "operators.", "kernels."
#: parts of a step: those of ``recordings.PARTS``, which need polars, without their unit
PARTS = (
    "data_wait", "forward", "backward", "optimizer", "device_wait", "between", "python",
    "computing", "exposed_communication", "exposed_copy", "idle",
)  # fmt: skip
SUFFIX = "_ns"
_LIMIT = re.compile(r"\s*(?P<figure>\S.*?)\s*>\s*(?P<percent>\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True)
class Limit:
    """By how much a figure may grow.

    Attributes:
        figure: STEP, one of PARTS, COMMUNICATION, MEMORY_PEAK, ``operators.NAME`` or ``kernels.NAME``.
        ratio: 0.02 is 2 %.
    """

    figure: str
    ratio: float

    def __str__(self) -> str:
        return f"{self.figure}>{100 * self.ratio:g}%"


def parse_limit(text: str) -> Limit:
    """A limit as a user writes it.

    Raises:
        SteplensError: it is none.
    """
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise SteplensError(f"{text!r} is no limit; write a figure and by how much it may grow, such as step>2%")
    figure = match["figure"]
    figures = [STEP, MEMORY_PEAK, *PARTS, COMMUNICATION]
    if figure not in figures and not any(figure.startswith(kind) and figure != kind for kind in (OPERATORS, KERNELS)):
        close = difflib.get_close_matches(figure, figures, 1)
        hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(figures)}, {OPERATORS}NAME and {KERNELS}NAME"
        raise SteplensError(f"{figure!r} is no figure that can have a limit{hint}")
    return Limit(figure, float(match["percent"]) / 100.0)
