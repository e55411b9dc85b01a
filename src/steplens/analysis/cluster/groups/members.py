"""The process groups of a job: their names, what describes them, and which ranks are in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from steplens.analysis.cluster.clocks.messages import communication_rows
from steplens.analysis.cluster.measured_communication import group_hash
from steplens.analysis.tools.once import once_per_run, once_per_trace
from steplens.analysis.tools.parallel import layout
from steplens.trace.building.cpu_device import DEFAULT_GROUP
from steplens.trace.trace import Trace

#: how PyTorch describes the group of all ranks
_DEFAULT = "default_pg"


@dataclass(frozen=True)
class ProcessGroup:
    """A process group.

    Attributes:
        name: that its operations bear; empty where they bear none.
        description: what the program, or the framework, calls it; empty where nobody recorded that.
        members: its ranks as the job numbers them, in order; where nobody recorded them, those that were recorded and took part.
        size: how many it has; None where that is not known.
        users: of its members those that were recorded and took part in an operation of it.
    """

    name: str
    description: str
    members: tuple[int, ...]
    size: int | None
    users: tuple[int, ...]

    def __hash__(self) -> int:
        # each of thousands of ranks asks for the group of all of them
        return hash((self.name, self.description, self.size))

    @property
    def is_whole(self) -> bool:
        """Whether all members are known."""
        return self.size is not None and len(self.members) == self.size


@dataclass(frozen=True)
class DescribedGroup:
    """A group as a rank describes it.

    Attributes:
        name: the one that counts.
        runs: its ranks in order, as start, end (exclusive) and distance of runs: thousands of ranks describe the group of all of
            them.
        description: what it is called.
    """

    name: str
    runs: tuple[tuple[int, int, int], ...]
    description: str

    @property
    def rank_count(self) -> int:
        """How many ranks it has, as far as it was described."""
        return sum(len(range(*run)) for run in self.runs)

    @property
    def all_members(self) -> tuple[int, ...]:
        """Its ranks in order."""
        return tuple(rank for run in self.runs for rank in range(*run))


def process_groups(traces: Sequence[Trace]) -> tuple[ProcessGroup, ...]:
    """The groups that the ranks describe or communicate in, the largest first, then in the order of their members and names.

    Two ranks mean one group by a name unless they describe it with other members.

    Source: ``distributedInfo`` (``pg_config``) or ``parallel_group_info`` of ``meta``, ``communication``.
    """
    return tuple(sorted(identified_groups(traces).values(), key=lambda group: (-(group.size or 0), group.members, group.name)))


@once_per_run
def identified_groups(traces: Sequence[Trace]) -> dict[DescribedGroup, ProcessGroup]:
    """``process_groups`` by what a rank knows of them (``group_of_name``)."""
    sizes: dict[DescribedGroup, int | None] = {}
    users: dict[DescribedGroup, set[int]] = {}
    for trace in traces:
        if trace.rank < 0:
            continue
        for group in described_groups(trace).values():
            sizes[group] = group.rank_count
        for name, size in used_groups(trace):
            group = group_of_name(trace, name)
            sizes[group] = sizes.get(group) or size
            users.setdefault(group, set()).add(trace.rank)
    job_size = layout(traces).size
    groups = {}
    for group, size in sizes.items():
        took_part = tuple(sorted(users.get(group, ())))
        # a group of unknown size that every rank of the job took part in is that of all
        full_size = size or (job_size if len(took_part) == job_size else None)
        groups[group] = ProcessGroup(group.name, group.description, group.all_members or took_part, full_size, took_part)
    return groups


def group_of_name(trace: Trace, name: str) -> DescribedGroup:
    """The group that operations of a rank bear the name of; without members where the rank does not describe it."""
    return described_groups(trace).get(name) or DescribedGroup(name, (), "")


@once_per_trace
def described_groups(trace: Trace) -> dict[str, DescribedGroup]:
    """The groups that a rank describes, by every name that its operations may bear."""
    values = trace.meta_values()
    group_of: dict[str, DescribedGroup] = {}
    for names, members, description in [*_of_pytorch(values), *_of_ascend(values)]:
        for name in names:
            group_of.setdefault(name, DescribedGroup(names[0], _runs_of(members), description))
    return group_of


def _runs_of(members: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """Numbers in order as start, end and distance of runs, each as long as it can be."""
    values = np.array(members, np.int64)
    distances = np.diff(values)
    # thousands of ranks mostly are one run
    changes = np.flatnonzero(distances[1:] != distances[:-1]) + 1
    runs = []
    start = 0
    while start < len(values):
        change = int(np.searchsorted(changes, start, "right"))
        last = int(changes[change]) if change < len(changes) else len(values) - 1
        distance = int(distances[start]) if start < last else 1
        runs.append((int(values[start]), int(values[last]) + 1, distance))
        start = last + 1
    return tuple(runs)


def _of_pytorch(values: dict[str, Any]) -> Iterator[tuple[list[str], tuple[int, ...], str]]:
    info = values.get("distributedInfo")
    listed = info.get("pg_config") if isinstance(info, dict) else None
    for group in listed if isinstance(listed, list) else []:
        if not isinstance(group, dict) or group.get("pg_name") is None:
            continue
        name, description = str(group["pg_name"]), str(group.get("pg_desc") or "")
        members = _rank_numbers(group.get("ranks"))
        size = group.get("pg_size")
        # PyTorch lists no ranks of a group that has all of them
        if not members and type(size) is int and size == values.get("world_size"):
            members = tuple(range(size))
        if members:
            yield [name, DEFAULT_GROUP] if description == _DEFAULT else [name], members, description


def _of_ascend(values: dict[str, Any]) -> Iterator[tuple[list[str], tuple[int, ...], str]]:
    listed = values.get("parallel_group_info")
    groups = [(key, group) for key, group in listed.items() if isinstance(group, dict)] if isinstance(listed, dict) else []
    names = [group.get("group_name") for _, group in groups]
    for key, group in groups:
        description = str(group.get("group_name") or "")
        if members := _rank_numbers(group.get("global_ranks")):
            # operations may bear the id, its hash, or a name that no other group has
            also = [description] if description and names.count(description) == 1 else []
            yield [key, str(group_hash(key)), *also], members, description


#: a larger number is no rank
_MOST_RANKS = 1 << 20


def _rank_numbers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or set(map(type, value)) != {int}:
        return ()
    ranks = tuple(sorted(set(value)))
    return ranks if ranks[0] >= 0 and ranks[-1] < _MOST_RANKS else ()


@once_per_trace
def used_groups(trace: Trace) -> list[tuple[str, int | None]]:
    """The groups that a rank communicates in, and how many ranks each has, as its operations say."""
    rows = communication_rows(trace)
    sizes = rows.group_by("group").agg(pl.col("ranks").max()).sort("group")
    return [(group, size) for group, size in sizes.iter_rows()]
