"""How long a transfer takes: latency, and bytes over the bandwidth of the slowest link among those who take part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.jobs.faults import Fault
from benchmarks.jobs.layout import Layout

#: bytes per second and ns: between the devices of a host, and of a device's adapter to other hosts
INSIDE_BANDWIDTH, INSIDE_LATENCY_NS = 400e9, 12_000
OUTSIDE_BANDWIDTH, OUTSIDE_LATENCY_NS = 50e9, 30_000


def traffic_factor(operation: str, members: int) -> float:
    """What of its input an operation moves over each link: nccl-tests' factors, for a gather by what a rank puts in."""
    if operation == "allreduce":
        return 2 * (members - 1) / members
    if operation == "_reduce_scatter_base":
        return (members - 1) / members
    return float(members - 1) if operation == "_allgather_base" else 1.0


@dataclass(frozen=True)
class Network:
    """The links of a job."""

    layout: Layout
    faults: list[Fault]

    def bandwidth(self, members: Sequence[int]) -> float:
        """Of the slowest link among them, bytes per second."""
        hosts = {self.layout.host_of(rank) for rank in members}
        slowest = INSIDE_BANDWIDTH if len(hosts) == 1 else OUTSIDE_BANDWIDTH
        divisor = 1.0
        for fault in self.faults:
            if fault.kind != "slow_link" or fault.factor is None:
                continue
            # what stays inside of a host does not pass its adapters
            crosses = fault.host in hosts and len(hosts) > 1
            between = fault.link is not None and set(fault.link) <= set(members)
            if crosses or between:
                divisor = max(divisor, fault.factor)
        return slowest / divisor

    def transfer_ns(self, operation: str, members: Sequence[int], size: int) -> float:
        """How long an operation of ``size`` bytes, as a rank puts them in, takes from its last arrival on."""
        inside = len({self.layout.host_of(rank) for rank in members}) == 1
        latency = INSIDE_LATENCY_NS if inside else OUTSIDE_LATENCY_NS
        return latency + traffic_factor(operation, len(members)) * size / self.bandwidth(members) * 1e9
