"""The recurring rows of device tasks of a trace, and what the two rules about them have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rules.tools.tasks import short_name
from steplens.analysis.device.task_sequences import Sequence as Row
from steplens.analysis.device.task_sequences import costliest_sequences, sequences
from steplens.trace.schema import KIND_COMPUTE

_AI_CPU = ("AI_CPU", "AICPU", "KERNEL_AICPU")
#: categories of tasks that wait for memory, where no counters tell: they compute little per byte
_MOVING = (
    "elementwise", "layout", "normalization", "softmax", "reduction", "random", "memset", "loss", "pooling", "indexing",
    "embedding",
)  # fmt: skip
_LEAST_SHARE = 0.01
#: rows that are counted, and said; tasks of a row that are named
_KEPT, _SAID, _LONG = 5, 3, 4
_MEASURED, _BY_CATEGORY = 0.8, 1 - 1e-9


@dataclass(frozen=True)
class Rows:
    """The rows of a trace.

    Attributes:
        tasks: what they are rows of.
        rows: the rows; ``weight`` is the share of their time that is bound by memory.
        least_weight: from which on a row is: by counters more than 80 %, by categories all of its tasks.
    """

    tasks: pl.DataFrame
    rows: Sequence[Row]
    least_weight: float

    def words(self, rows: Sequence[Row]) -> tuple[str, ...]:
        """The first rows as text: ``Mul > Add (12)``, with the number of occurrences."""
        return tuple(f"{_join_task_names(row.names(self.tasks))} ({row.count})" for row in rows[:_SAID])

    def steps(self, rows: Sequence[Row]) -> tuple[int, ...]:
        """The steps of some rows."""
        return tuple(sorted({step for row in rows for step in row.steps(self.tasks)}))


def _join_task_names(names: Sequence[str]) -> str:
    short = [short_name(name) for name in names]
    return " > ".join(short if len(short) <= _LONG else [*short[: _LONG - 1], "...", short[-1]])


def rows_of(facts: Facts) -> Rows:
    """Rows that take more than 1 % of the steps.

    What is bound by memory, performance counters tell where they were recorded (reading and writing over the core's time),
    else categories.
    """
    tasks = facts.tasks.filter(pl.col("kind").is_in([KIND_COMPUTE, "communication"]))
    if tasks.is_empty():
        return Rows(tasks, [], 1.0)
    stops = (pl.col("kind") != KIND_COMPUTE) | pl.col("core").is_in(_AI_CPU).fill_null(False)
    measured = facts.measured
    if measured.is_empty():
        moving = tasks.select(pl.col("category").is_in(_MOVING).fill_null(False).cast(pl.Float64)).to_series()
    else:
        reading = pl.max_horizontal("aic_mte2", "aiv_mte2").fill_null(0.0)
        writing = pl.max_horizontal("aic_fixpipe", "aiv_mte3").fill_null(0.0)
        shares = measured.select("id", moving=(reading + writing).clip(0, 1))
        moving = tasks.select("id").join(shares, on="id", how="left", maintain_order="left")["moving"].fill_null(0.0)
    least_weight = _BY_CATEGORY if measured.is_empty() else _MEASURED
    least_ns = _LEAST_SHARE * facts.step_ns * facts.steps.height
    return Rows(tasks, sequences(tasks, tasks.select(stops).to_series(), moving, least_ns), least_weight)


def row_findings(
    facts: Facts,
    rule: str,
    what: str,
    confidence: float,
    worth: Callable[[Rows, Row], float],
    spent: Callable[[Row], float],
    part: str,
) -> Iterator[Finding]:
    """One finding about the five rows that are worth most; none where no row is worth anything.

    Args:
        facts: of one trace.
        rule: whose finding it is.
        what: kind of evidence that ``spent`` is.
        confidence: of the finding.
        worth: what fusing a row saves at most, ns in all steps.
        spent: what is lost on a row, ns in all steps.
        part: of a step, that fusing shortens.
    """
    if not facts.step_ns:
        return
    rows = facts.once(rows_of)
    costly = costliest_sequences(rows.rows, lambda row: worth(rows, row), _KEPT)
    if not costly:
        return
    steps = facts.recorded.height
    evidence = [
        Evidence(what, sum(map(spent, costly)) / steps, "ns", rows.steps(costly), rows.words(costly)),
        Evidence("sequence_tasks", sum(row.count * row.length for row in costly) / steps, "count"),
    ]
    saving = Saving.up_to(sum(worth(rows, row) for row in costly) / steps)
    yield facts.make_finding(rule, evidence, saving, confidence=confidence, part=part, values={"count": len(costly)})
