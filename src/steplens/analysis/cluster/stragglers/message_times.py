"""Every message of a job with how long each of its sides waited for the last one, and how long it moved data."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.analysis.cluster.arrivals import messages_on_one_clock
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

TIMES = table_schema(
    "message, step, group: String, operation: String, kind: String, number, rank, bytes, is_part: Boolean, members, size, "
    "start_ns, end_ns, own_start_ns, wait_ns, transfer_ns, error_ns"
)


@once_per_run
def message_times(traces: Sequence[Trace]) -> pl.DataFrame:
    """Collectives of whole groups, sends and receives, one row per side; columns as in ``TIMES``.

    With A the last start of a message on the common clock: ``wait_ns`` = A - start, at most the whole length; ``transfer_ns`` the
    rest. A receive waits until its sender has come, and a send until its receiver has, unless it ends before.

    Args:
        traces: of one job.

    Returns:
        start_ns and end_ns on the clock of the lowest rank, own_start_ns on that of the rank; ``error_ns``: how far wait_ns may
        be off since clocks differ. Messages of which nobody can tell how the clocks of their ranks lie are left out.
    """
    rows = messages_on_one_clock(traces, pl.col("members") >= pl.col("size"))
    if rows.is_empty():
        return pl.DataFrame(schema=TIMES)
    last = pl.col("start_ns").max().over("message")
    rows = rows.with_columns(wait_ns=pl.min_horizontal(last, "end_ns") - pl.col("start_ns"))
    rows = rows.with_columns(transfer_ns=pl.col("end_ns") - pl.col("start_ns") - pl.col("wait_ns"))
    return rows.sort("message", "rank").select(cast_columns(TIMES))
