"""What one rank does more than the others: its operators beside theirs, with the source lines that call them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.analysis.operators.operators import ALL_STEPS, operators
from steplens.analysis.steps.choice import chosen_steps
from steplens.analysis.tools.once import once_if_small
from steplens.analysis.tools.parallel import by_rank
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.analysis.tools.source_lines import source_line
from steplens.trace.schema import STEP_PREFIX
from steplens.trace.trace import Trace

COLUMNS = table_schema(
    "name: String, line: String, calls: Float64, other_calls: Float64, self_ns: Float64, other_self_ns: Float64, "
    "more_ns: Float64, device_self_ns: Float64, other_device_self_ns: Float64, more_device_ns: Float64"
)
_FIGURES = ("calls", "self_ns", "device_self_ns")
_KEY = ["name", "line"]


def rank_differences(traces: Sequence[Trace], rank: int, *, by_line: bool = False) -> pl.DataFrame:
    """The operators of a rank that take more of a step there than on the other ranks, largest difference first.

    Per step, means over the chosen steps of each rank: calls, self time on the host and device time of the calls of one name
    from one line of the user's own code (null where no stacks were recorded); ``other_*`` are the medians over the other
    ranks, 0 where most of them do not call it at all. ``more_ns`` and ``more_device_ns`` are what the rank spends beyond that.
    Communication is left out: it tells how long a rank waits.

    Args:
        traces: of one job.
        rank: which.
        by_line: all operators of a line are one row, without a name; lines that are not known are left out.
    """
    frames = [_per_step(windows, number, by_line) for number, windows in by_rank(traces).items()]
    ranks = [number for number, frame in zip(by_rank(traces), frames, strict=True) if frame.height]
    if rank not in ranks or len(ranks) < 2:
        return pl.DataFrame(schema=COLUMNS)
    rows = pl.concat(frames)
    rank_rows = rows.filter(rank=rank).drop("rank")
    # a rank that never calls it counts with nothing
    other_ranks = pl.DataFrame({"rank": [number for number in ranks if number != rank]}, schema={"rank": pl.Int64})
    each = rank_rows.select(_KEY).join(other_ranks, how="cross").join(rows, on=[*_KEY, "rank"], how="left", nulls_equal=True)
    medians = each.group_by(_KEY).agg(pl.col(_FIGURES).fill_null(0).median().name.prefix("other_"))
    both = rank_rows.join(medians, on=_KEY, nulls_equal=True).with_columns(
        more_ns=pl.col("self_ns") - pl.col("other_self_ns"),
        more_device_ns=pl.col("device_self_ns") - pl.col("other_device_self_ns"),
    )
    most = pl.max_horizontal("more_ns", "more_device_ns")
    return both.filter(most > 0).sort(most, *_KEY, descending=[True, False, False]).select(cast_columns(COLUMNS))


@once_if_small
def _calls_by_stack(trace: Trace) -> pl.DataFrame:
    """``operators`` by name and stack, of the chosen steps."""
    return operators(trace, "stack", chosen_steps(trace).steps)


def _names_of_communication(trace: Trace) -> tuple[str | None, ...]:
    """What communication operations are called in a trace."""
    names = trace.required("communication").select(pl.col("name").cast(pl.String).unique().sort()).collect()["name"]
    return tuple(names.to_list())


def _per_step(windows: Sequence[Trace], rank: int, by_line: bool) -> pl.DataFrame:
    """name, line, rank and ``_FIGURES`` of a step of one rank."""
    steps = [chosen_steps(trace).steps for trace in windows]
    calls = [_calls_by_stack(trace) for trace, of in zip(windows, steps, strict=True) if of]
    schema: dict[str, pl.DataType] = {"name": pl.String(), "line": pl.String(), "rank": pl.Int64()}
    schema |= dict.fromkeys(_FIGURES, pl.Float64())
    if not calls:
        return pl.DataFrame(schema=schema)
    rows = pl.concat(calls).with_columns(pl.col("name").cast(pl.String))
    # how long communication takes says how long a rank waits, not what it does
    moved = {name for trace in windows for name in trace.once(_names_of_communication)}
    name = pl.col("name").fill_null("")
    is_work = ~name.is_in([*moved, ALL_STEPS]) & ~name.str.starts_with(STEP_PREFIX)
    rows = rows.with_columns(line=source_line(rows["stack"])).filter(is_work)
    if by_line:
        rows = rows.drop_nulls("line").with_columns(name=pl.lit(None, dtype=pl.String))
    sums = rows.group_by(_KEY).agg(pl.col(_FIGURES).sum() / sum(map(len, steps)))
    return sums.with_columns(rank=pl.lit(rank)).select(cast_columns(schema))
