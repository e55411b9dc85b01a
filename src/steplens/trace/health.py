"""Findings about the data itself: what was lost, damaged or contradictory, and what that makes unsafe."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import polars as pl

from steplens.trace.schema import SCHEMA


@dataclass(frozen=True)
class HealthFinding:
    """One finding about the data.

    Attributes:
        check: stable identifier, such as ``truncated_file``.
        severity: "info", "warning" or "error".
        count: how many events it concerns.
        message: one sentence for the user.
        unsafe: what not to trust because of it; empty when nothing is.
    """

    check: str
    severity: str
    count: int
    message: str
    unsafe: str = ""


class HealthLog:
    """Collects findings while a source is read."""

    def __init__(self) -> None:
        self.findings: list[HealthFinding] = []

    def add(self, check: str, severity: str, count: int, message: str, unsafe: str = "") -> None:
        """Record one finding; see ``HealthFinding`` for the arguments."""
        self.findings.append(HealthFinding(check, severity, count, message, unsafe))

    def frame(self) -> pl.DataFrame:
        """The findings as the ``health`` table."""
        return pl.DataFrame([asdict(finding) for finding in self.findings], schema=SCHEMA["health"])
