"""A Python loop over elements or rows: hundreds of operators of microseconds, one after the other, where one would do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.host.scalar_reads import READS
from steplens.analysis.tools.groups import among, medians, numbered
from steplens.analysis.tools.names import containing, with_prefix
from steplens.analysis.tools.order import in_order
from steplens.trace.health import OPERATOR_CALLS, OPERATOR_TIMES
from steplens.trace.schema import SCOPE_BACKWARD, SCOPE_FUNCTION

_OPTIMIZER = "Optimizer."
#: a call this short is mostly dispatch, not arithmetic
_TINY_NS = 30_000
#: between two calls of a loop lies a little Python, and at times another process has the processor
_GAP_NS = 1_000_000
_LEAST_CALLS = 100
#: a loop repeats few operators often
_REPEATS = 20
_LEAST_SHARE = 0.03
#: what one operator over all the data still takes
_REMAINING = 0.05
#: longest storms whose operators are named
_NAMED = 3
_COLUMNS = ("id", "parent", "name", "scope", "pid", "tid", "step", "start_ns", "end_ns", "duration_ns", "stack")


def judge(facts: Facts) -> Iterator[Finding]:
    """Storms of tiny calls: the whole length of each, gaps included, goes when one operator does the work.

    A storm is a row of at least 100 outermost calls of one thread, of operators that take less than 30 us as a rule, each
    less than 1 ms after the one before it, in which every operator occurs 20 times on average. The optimizer's calls and
    reads of scalars have rules of their own.
    """
    if facts.named_calls.height < _LEAST_CALLS:
        return
    calls = _outermost(facts)
    if calls.is_empty() or not facts.step_ns:
        return
    start, end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    operator, count = numbered(calls, ["name", "step"])
    tiny = (medians(operator, calls["duration_ns"].to_numpy(), count) < _TINY_NS)[operator]
    lane = calls.select(pl.struct("pid", "tid", "step").rle_id()).to_series().to_numpy()
    apart = np.r_[True, (start[1:] - end[:-1] > _GAP_NS) | (lane[1:] != lane[:-1]) | ~tiny[1:] | ~tiny[:-1]]
    storm = np.cumsum(apart) - 1
    # most rows are too short, and counting them takes next to nothing
    enough = np.bincount(storm[tiny], minlength=len(calls)) >= _LEAST_CALLS
    members = calls.with_columns(storm=pl.Series(storm)).filter(pl.Series(tiny & enough[storm]))
    storms = (
        members.group_by("storm")
        .agg(
            calls=pl.len(),
            names=pl.col("name").n_unique(),
            length_ns=pl.col("end_ns").max() - pl.col("start_ns").min(),
            step=pl.col("step").first(),
            stacks=pl.col("stack").count(),
        )
        .filter(pl.col("calls") >= _REPEATS * pl.col("names"))
    )
    total = facts.typical_ns(storms, "length_ns")
    if total < _LEAST_SHARE * facts.step_ns:
        return
    longest = storms.sort("length_ns", "storm", descending=[True, False])
    common = [_most(members, one, "name") for one in longest["storm"].head(_NAMED).to_list()]
    placed = longest.filter(pl.col("stacks") > 0)["storm"].head(1).to_list()
    line = _most(members, placed[0], "stack").partition(";")[0] if placed else ""
    places = tuple(dict.fromkeys([*([line] if line else []), *common]))
    likely = (1 - _REMAINING) * total
    yield Finding(
        rule=RULE.name,
        confidence=0.8,
        evidence=(
            Evidence("storms", total, "ns", tuple(sorted(set(storms["step"].to_list()))), places),
            Evidence("storm_calls", float(storms["calls"].sum()) / facts.steps.height, "count"),
        ),
        saving=Saving(0.6 * total, likely, total),
        step_ns=facts.step_ns,
        values={"operator": common[0]},
    )


def _most(members: pl.DataFrame, storm: int, column: str) -> str:
    """What most calls of a storm have in a column of names; of several the first by alphabet."""
    names = members.filter(pl.col("storm") == storm)[column].drop_nulls()
    return str(names.mode().cast(pl.String).sort()[0])


def _outermost(facts: Facts) -> pl.DataFrame:
    """Operator calls that no other operator made, outside the optimizer, in order of thread and time."""
    calls = facts.named_calls.select(_COLUMNS)
    optimizers = with_prefix(facts.names, _OPTIMIZER)
    # handing over gradients is as much work as there are parameters
    handing_over = containing(facts.names, "AccumulateGrad")
    name = pl.col("name")
    above = calls.filter(name.is_in(optimizers + handing_over))["id"]
    # a node of the graph is one call, whatever it calls
    kinds = pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD])
    functions = calls.filter(kinds & ~name.is_in(READS) & ~name.is_in(handing_over))
    inner = among(functions["parent"], pl.concat([functions["id"], above]))
    return in_order(functions.filter(pl.Series(~inner)), "pid", "tid", "start_ns")


RULE = Rule("tiny_operators", judge, (OPERATOR_CALLS, OPERATOR_TIMES))
