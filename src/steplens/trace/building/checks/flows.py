"""Arrows between events: each has both ends, and its end does not precede its start."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.trace.building.checks.common import Tables, format_duration, time_resolution
from steplens.trace.health import FLOWS, HOST_AGAINST_DEVICE, WARNING, HealthFinding, finding

_JITTER_NS = 1_000

#: arrows between host calls; every other kind leads from the host to the device
_HOST_KINDS = ("fwdbwd", "async_task_queue")


def unmatched_flows(starts: pl.DataFrame, ends: pl.DataFrame, tasks: pl.Series | None) -> Iterator[HealthFinding]:
    """Every arrow has both ends. For readers, which alone see the halves.

    Kineto writes a half for every runtime call, also for those that launch nothing: of arrows to the device only those
    that belong to a device task count.

    Args:
        starts: columns kind (text) and flow_id, one row per start.
        ends: the same for ends.
        tasks: the correlations of the device tasks, which are the ids of their arrows; None where ids mean nothing else.
    """
    keys = ["kind", "flow_id"]
    if not starts.height and not ends.height:
        return
    starts, ends = starts.select(keys).unique(), ends.select(keys).unique()
    halves = pl.concat([starts.join(ends, on=keys, how="anti"), ends.join(starts, on=keys, how="anti")])
    if tasks is not None:
        belongs = pl.col("flow_id").is_in(tasks.drop_nulls().unique().implode())
        halves = halves.filter(pl.col("kind").cast(pl.String).is_in(_HOST_KINDS) | belongs)
    if halves.height:
        kinds = ", ".join(sorted(halves["kind"].unique().cast(pl.String).to_list()))
        message = f"{halves.height} arrows between events ({kinds}) have only one end and were left out"
        yield finding("unmatched_flows", WARNING, halves.height, message, FLOWS)


def backward_flows(tables: Tables) -> Iterator[HealthFinding]:
    """No arrow leads back in time."""
    flows = tables.get("flows")
    if flows is None:
        return
    flows = flows[["from_ns", "to_ns"]]
    flows = flows.drop_nulls() if any(column.null_count() for column in flows.get_columns()) else flows
    allowed = _JITTER_NS + time_resolution(flows["from_ns"])
    back = (flows["from_ns"] - flows["to_ns"]).filter(flows["to_ns"] < flows["from_ns"] - allowed)
    if len(back):
        message = f"{len(back)} of {flows.height} arrows between events lead back in time, by up to {format_duration(back.max())}"
        yield finding("backward_flows", WARNING, len(back), message, FLOWS, HOST_AGAINST_DEVICE)
