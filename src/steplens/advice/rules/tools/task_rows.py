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
from steplens.analysis.tools.names import containing, of_calls
from steplens.trace.schema import KIND_COMPUTE

_AI_CPU = ("AI_CPU", "AICPU", "KERNEL_AICPU")
#: categories of tasks that wait for memory, where no counters tell: they compute little per byte
_MOVING = (
    "elementwise", "layout", "normalization", "softmax", "reduction", "random", "memset", "loss", "pooling", "indexing",
    "embedding",
)  # fmt: skip
_LEAST_SHARE = 0.01
#: rows that are counted, and said; tasks of a row that are named
_KEPT, _LONG = 5, 4
#: calls whose tasks work on ready gradients, and on parameters: the tasks beside them neither feed them nor read from them
_BETWEEN_GRAPHS = r"AccumulateGrad|torch::distributed::reducer|^Optimizer\."
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

    def words(self, rows: Sequence[Row], facts: Facts) -> tuple[str, ...]:
        """The rows as text: ``12 x Mul > Add``, with their occurrences in a step; by operators where these are known."""
        steps = max(facts.recorded.height, 1)
        return tuple(f"{row.count / steps:.3g} x {_join_task_names(self._task_names(row, facts))}" for row in rows)

    def _task_names(self, row: Row, facts: Facts) -> list[str]:
        """What launched each task of a row; several operators may launch the same one, and then a count is of all of them."""
        by_position = [self.tasks["op"].gather(row.first + place).drop_nulls() for place in range(row.length)]
        numbers = pl.concat(by_position).unique()
        ops = facts.trace.required("ops").filter(pl.col("id").is_in(numbers.implode()))
        operators = dict(ops.select("id", pl.col("name").cast(pl.String)).collect().iter_rows())
        names = []
        for task, launched in zip(row.names(self.tasks), by_position, strict=True):
            launching = dict.fromkeys(name for op in launched if (name := operators.get(op)))
            names.append(" / ".join(launching) or short_name(task))
        return names

    def steps(self, rows: Sequence[Row]) -> tuple[int, ...]:
        """The steps of some rows."""
        return tuple(sorted({step for row in rows for step in row.steps(self.tasks)}))


def _join_task_names(short: Sequence[str]) -> str:
    return " > ".join(short if len(short) <= _LONG else [*short[: _LONG - 1], "...", short[-1]])


def rows_within_graphs(facts: Facts) -> Rows:
    """``rows_of`` without tasks of gradients' hooks and of optimizers: neighbours in time, of which no compiler makes one."""
    calls = facts.once(_calls_between_graphs)
    return facts.once(rows_of) if calls is None else _make_rows(facts, pl.col("op").is_in(calls.implode()).fill_null(False))


def _calls_between_graphs(facts: Facts) -> pl.Series | None:
    """The calls that hand gradients over or update parameters, with all that they call; None where there are none."""
    names = containing(of_calls(facts.trace), _BETWEEN_GRAPHS)
    if not names:
        return None
    calls = facts.trace.required("ops").filter(pl.col("step").is_in(list(facts.numbers))).select("id", "parent", "name").collect()
    is_between = calls["name"].is_in(names)
    level = calls.filter(is_between)["id"]
    if not level.len():
        return None
    while level.len():
        # none twice: a damaged file may say that a call is its own parent
        is_called = calls["parent"].is_in(level.implode()) & ~is_between
        level, is_between = calls.filter(is_called)["id"], is_between | is_called
    return calls.filter(is_between)["id"].unique()


def rows_of(facts: Facts) -> Rows:
    """Rows that take more than 1 % of the steps.

    What is bound by memory, performance counters tell where they were recorded (reading and writing over the core's time),
    else categories.
    """
    return _make_rows(facts, pl.lit(False))


def _make_rows(facts: Facts, more_stops: pl.Expr) -> Rows:
    tasks = facts.tasks.filter(pl.col("kind").is_in([KIND_COMPUTE, "communication"]))
    if tasks.is_empty():
        return Rows(tasks, [], 1.0)
    stops = (pl.col("kind") != KIND_COMPUTE) | pl.col("core").is_in(_AI_CPU).fill_null(False) | more_stops
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
    make_rows: Callable[[Facts], Rows] = rows_of,
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
        make_rows: the rows of the trace.
    """
    if not facts.step_ns:
        return
    rows = facts.once(make_rows)
    costly = costliest_sequences(rows.rows, lambda row: worth(rows, row), _KEPT)
    if not costly:
        return
    steps = facts.recorded.height
    evidence = [
        Evidence(what, sum(map(spent, costly)) / steps, "ns", rows.steps(costly), rows.words(costly, facts), of_mean=True),
        Evidence("sequence_tasks", sum(row.count * row.length for row in costly) / steps, "count"),
    ]
    saving = Saving.up_to(sum(worth(rows, row) for row in costly) / steps)
    yield facts.make_finding(rule, evidence, saving, confidence=confidence, part=part, values={"count": len(costly)})
