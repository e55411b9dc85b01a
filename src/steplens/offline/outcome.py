"""What became of the runs that were analysed, and what the shell is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steplens.common.errors import SteplensError
from steplens.offline.recompute import Comparison
from steplens.trace.health import HealthFinding
from steplens.trace.trace import Trace
from steplens.writers.result import DONE, OutputStatus

EXIT_BAD_INPUT = SteplensError.exit_code
#: some runs or outputs were written and others failed, or what was written contradicts what was there
EXIT_PARTIAL = 3


@dataclass(frozen=True)
class RunResult:
    """What became of one run directory.

    Attributes:
        path: the run directory.
        ok: every output that was due exists.
        outputs: file name -> status; empty when the run could not be read, or was complete already.
        seconds: wall time of reading and writing.
        written_to: the run directory that holds the results; that of the run itself unless they were recomputed.
        already_complete: nothing was done, because the result was newer than the raw data.
        note: what the user should know about it, in one sentence.
        comparison: recomputed results beside those that the capture brought along.
        problem: why the run could not be read, in one sentence; empty when it could.
        findings: findings about the data.
    """

    path: Path
    ok: bool
    outputs: dict[str, OutputStatus] = field(default_factory=dict)
    seconds: float = 0.0
    written_to: Path | None = None
    already_complete: bool = False
    note: str = ""
    comparison: tuple[Comparison, ...] = ()
    problem: str = ""
    findings: tuple[HealthFinding, ...] = ()


def exit_code(results: Sequence[RunResult]) -> int:
    """0 when every run is complete, 3 when only some runs or outputs could be written, 2 when none could.

    3 also when a recomputed result differs from the capture's own by what matters.
    """
    if all(result.ok for result in results):
        differs = any(comparison.matters for result in results for comparison in result.comparison)
        return EXIT_PARTIAL if differs else 0
    written = any(result.ok or any(status.status == DONE for status in result.outputs.values()) for result in results)
    return EXIT_PARTIAL if written else EXIT_BAD_INPUT


def recorded_findings(trace: Trace) -> tuple[HealthFinding, ...]:
    """What the readers of a trace found out about its data."""
    return tuple(HealthFinding(**row) for row in trace.required("health").collect().iter_rows(named=True))


def polars_panic() -> type[BaseException]:
    """What polars raises where its native code fails; no Exception."""
    import polars as pl

    return pl.exceptions.PanicException


def one_line(error: BaseException) -> str:
    """An error in one line, with its kind where it is none of ours."""
    text = str(error) if isinstance(error, SteplensError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())
