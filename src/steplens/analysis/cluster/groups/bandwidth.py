"""How fast collectives and messages are: algorithm and bus bandwidth, as nccl-tests counts them, with what clocks leave open."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.analysis.cluster.communication_operations import ARRIVAL, LIBRARY, operations_in_portions
from steplens.analysis.cluster.stragglers.message_times import message_times
from steplens.analysis.tools.joined_rows import join_rows
from steplens.analysis.tools.message_size import bus_factor, is_one_part, message_bytes
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.building.checks.ranks import ends_together
from steplens.trace.schema import COLLECTIVE
from steplens.trace.trace import Trace

_RATES = "bus_bytes_per_s: Float64, algorithm_bytes_per_s: Float64, bus_low_bytes_per_s: Float64, bus_high_bytes_per_s: Float64"
MESSAGES = table_schema(
    f"step, group: String, operation: String, number, ranks, message_bytes, {_RATES}, transfer_ns, transfer_low_ns, "
    "transfer_high_ns, measured_by: String"
)
SIZES = table_schema(
    f"operation: String, group: String, ranks, message_bytes, {_RATES}, bus_at_least_bytes_per_s: Float64, messages, measured, "
    "transfer_ns: Float64, error_ns: Float64, measured_by: String"
)
_KEY = ["operation", "group", "ranks", "message_bytes"]
#: of the bandwidths of messages of one size, so many are lower, and so many higher, than the range that is told
_LOW, _HIGH = 0.1, 0.9
_MESSAGE = ["step", "group", "operation", "number"]


def bus_bandwidth(traces: Sequence[Trace], by: str = "size") -> pl.DataFrame:
    """Algorithm and bus bandwidth of collectives, sends and receives: of all of one size, or of each.

    Of a message with A the last arrival and l_r when rank r leaves it, both on the common clock (``arrivals``), or with what the
    communication library calls transit where ranks of the group are missing (``measured_by`` "library"):

    * ``transfer_ns``: l_r - A, the mean over its ranks, as nccl-tests averages them; where ranks may leave before all have come,
      as the root of a broadcast or a sender does, the longest over its ranks. ``transfer_low_ns`` and
      ``transfer_high_ns``: what it is at least and at most since clocks differ. No rank takes longer than it was in the
      operation, which its own clock tells. Null where clocks leave more open than it takes.
    * ``message_bytes``: of the whole message, as nccl-tests counts it (``tools.message_size``).
    * ``algorithm_bytes_per_s`` = message_bytes / transfer; ``bus_bytes_per_s`` = that times the factor of nccl-tests for the
      operation and the number of ranks (``tools.message_size.bus_factor``), the speed of the links. Null where one of these is
      not known. Of single messages
      ``bus_low_bytes_per_s`` and ``bus_high_bytes_per_s`` are what the clocks leave open; the higher one is null where they allow
      a transfer of no time. Of a collective whose transfer nothing tells, since ranks of its group are missing, it is known that
      it was no longer than the whole: ``bus_low_bytes_per_s`` = what that makes.

    Args:
        traces: of one job.
        by: "size" (operation, group and message_bytes): medians over the messages of which it is known, ``measured`` of
            ``messages``; the range is from the lowest to the highest tenth of them; ``error_ns`` is the median of half of what
            clocks leave open of a transfer; ``bus_at_least_bytes_per_s`` is the highest of what single ones have at least.
            "message": each message, in order of step, group, operation and number.

    Raises:
        ValueError: ``by`` is none of them.
    """
    if by == "message":
        return message_bandwidths(traces)
    if by != "size":
        raise ValueError(f"bus_bandwidth(by={by!r}): by must be one of size, message")
    return _bandwidths_of_sizes(traces)


@once_per_run
def _bandwidths_of_sizes(traces: Sequence[Trace]) -> pl.DataFrame:
    rows = message_bandwidths(traces).with_columns(rate=pl.col("bus_bytes_per_s"))
    is_known = pl.col("algorithm_bytes_per_s").is_not_null()
    sizes = rows.group_by(_KEY).agg(
        messages=pl.len(),
        measured=is_known.sum(),
        error_ns=((pl.col("transfer_high_ns") - pl.col("transfer_low_ns")) / 2)
        .filter(pl.col("transfer_ns").is_not_null())
        .median(),
        bus_low_bytes_per_s=pl.col("rate").quantile(_LOW, "linear"),
        bus_high_bytes_per_s=pl.col("rate").quantile(_HIGH, "linear"),
        bus_bytes_per_s=pl.col("rate").median(),
        transfer_ns=pl.col("transfer_ns").median(),
        algorithm_bytes_per_s=pl.col("algorithm_bytes_per_s").median(),
        bus_at_least_bytes_per_s=pl.col("bus_low_bytes_per_s").max(),
        measured_by=pl.col("measured_by").drop_nulls().mode().sort().first(),
    )
    return sizes.sort(_KEY, descending=[False, False, False, True], nulls_last=True).select(cast_columns(SIZES))


@once_per_run
def message_bandwidths(traces: Sequence[Trace]) -> pl.DataFrame:
    """Every message of the steps with its bandwidth; see ``bus_bandwidth``; columns as in ``MESSAGES``."""
    rows = pl.concat([_from_arrivals(traces), _from_library(traces)])
    is_told = (pl.col("transfer_ns") > 0) & (pl.col("transfer_high_ns") - pl.col("transfer_low_ns") <= pl.col("transfer_ns"))
    rate = pl.col("message_bytes") * 1e9
    has_bytes = pl.col("message_bytes") > 0
    rows = rows.with_columns(transfer_ns=pl.when(is_told).then("transfer_ns"))
    rows = rows.with_columns(
        algorithm_bytes_per_s=pl.when(has_bytes).then(rate / pl.col("transfer_ns")),
        bus_low_bytes_per_s=pl.when(has_bytes & (pl.col("transfer_high_ns") > 0)).then(rate / pl.col("transfer_high_ns")),
        bus_high_bytes_per_s=pl.when(has_bytes & (pl.col("transfer_low_ns") > 0)).then(rate / pl.col("transfer_low_ns")),
    )
    factor = bus_factor()
    rows = rows.with_columns(
        bus_bytes_per_s=pl.col("algorithm_bytes_per_s") * factor,
        bus_low_bytes_per_s=pl.col("bus_low_bytes_per_s") * factor,
        bus_high_bytes_per_s=pl.col("bus_high_bytes_per_s") * factor,
    )
    return rows.sort(_MESSAGE, nulls_last=True).select(cast_columns(MESSAGES))


def _over_ranks(column: str) -> pl.Expr:
    """What a message has of what its ranks have: the mean where all leave together, else the most."""
    return pl.when(ends_together(pl.col("operation").first())).then(pl.col(column).mean().round()).otherwise(pl.col(column).max())


_TIMED = table_schema(
    "step, group: String, operation: String, number, ranks, message_bytes, transfer_ns, transfer_low_ns, transfer_high_ns, "
    "measured_by: String"
)


def _from_arrivals(traces: Sequence[Trace]) -> pl.DataFrame:
    """The messages of which all ranks were recorded and whose clocks can be compared."""
    sides = message_times(traces)
    if sides.is_empty():
        return pl.DataFrame(schema=_TIMED)
    # both sides of a message between two ranks are counted in the rank that it comes from
    sides = sides.with_columns(ranks=pl.max_horizontal("members", "size"), duration_ns=pl.col("end_ns") - pl.col("start_ns"))
    arrival = pl.col("start_ns").max().over("message")
    # a rank whose clock is off by as much as it may be came later than the one that seems to be the last
    later = ((pl.col("start_ns") + pl.col("error_ns")).max().over("message") - arrival).clip(0)
    sides = sides.with_columns(
        high_ns=pl.min_horizontal(pl.col("transfer_ns") + pl.col("error_ns"), "duration_ns"),
        low_ns=(pl.col("transfer_ns") - pl.col("error_ns") - later).clip(0),
        whole_bytes=message_bytes(),
    )
    messages = sides.group_by("message", maintain_order=True).agg(
        pl.col("step", "group", "operation", "number", "ranks").first(),
        # the root alone puts something into a scatter
        pl.when(pl.col("operation").first().str.contains("(?i)^scatter"))
        .then(pl.col("whole_bytes").max())
        .when(pl.col("whole_bytes").null_count() == 0)
        .then(pl.col("whole_bytes").mean().round())
        .alias("message_bytes"),
        transfer_ns=_over_ranks("transfer_ns"),
        transfer_low_ns=_over_ranks("low_ns"),
        transfer_high_ns=_over_ranks("high_ns"),
    )
    return messages.with_columns(measured_by=pl.lit(ARRIVAL)).select(cast_columns(_TIMED))


def _from_library(traces: Sequence[Trace]) -> pl.DataFrame:
    """The collectives of which ranks are missing, by what the communication library measured on those that are here."""
    has_not_arrived = (pl.col("kind") == COLLECTIVE) & (pl.col("measured_by") != ARRIVAL).fill_null(True)
    rows = join_rows(
        operations.filter(has_not_arrived & pl.col("step").is_not_null()) for _, operations in operations_in_portions(traces)
    )
    rows = rows.with_columns(is_part=is_one_part()).with_columns(whole_bytes=message_bytes())
    transfer = pl.col("transfer_ns").filter(pl.col("measured_by") == LIBRARY).mean().round()
    messages = rows.group_by(_MESSAGE, maintain_order=True).agg(
        ranks=pl.col("ranks").max(),
        message_bytes=pl.when(pl.col("whole_bytes").null_count() == 0).then(pl.col("whole_bytes").mean().round()),
        transfer_ns=transfer,
        transfer_low_ns=transfer.fill_null(0),
        transfer_high_ns=transfer.fill_null(pl.col("duration_ns").mean().round()),
        measured_by=pl.col("measured_by").drop_nulls().first(),
    )
    return messages.select(cast_columns(_TIMED))
