"""One text of the catalogue, and its languages."""

from __future__ import annotations

from dataclasses import dataclass

ENGLISH, CHINESE = "en", "zh"
LANGUAGES = (ENGLISH, CHINESE)


@dataclass(frozen=True)
class Text:
    """What is said of one rule; ``{name}`` stands for a value of the finding.

    Attributes:
        title: the cause, in a few words.
        cause: what happens, and why it costs.
        remedy: what to change.
        patch: the change as lines of a diff, where it is small; empty otherwise.
    """

    title: str
    cause: str
    remedy: str
    patch: str = ""
