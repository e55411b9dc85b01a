"""Links over which messages move more slowly than the same messages do elsewhere in the job."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from steplens.analysis.cluster.clocks.job_clocks import host_of
from steplens.analysis.cluster.stragglers.exposed_waits import exposed_waits
from steplens.analysis.cluster.stragglers.message_times import message_times
from steplens.analysis.tools.chance import chance_of_at_least
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

#: what is known of groups (``GROUPS``), and the ranks of each
Speeds: TypeAlias = tuple[pl.DataFrame, dict[str, tuple[int, ...]]]

OF_HOST, BETWEEN_HOSTS, OF_RANKS = "host", "hosts", "ranks"
#: ``hosts``: how many its ranks are on, 0 where that is not known; ``lost_ns``: what the group would move sooner in a step;
#: ``late``: how many of its ``messages`` take ``_SLOWER`` times as long as usual or more
GROUPS = table_schema(
    "group: String, operation: String, bytes, size, hosts, count: Float64, transfer_ns: Float64, usual_ns: Float64, "
    "lost_ns: Float64, messages, late"
)
_ALIKE = ["operation", "bytes", "size", "hosts"]

#: a group is slow that takes so many times as long as the quicker ones do, and by so much of a step
_SLOWER, _SHARE = 1.5, 0.03
#: by which chance one of all groups that are compared would have so many late messages, at most
_CHANCE = 0.05
#: so many messages of a group tell how long one takes
_LEAST_MESSAGES = 3
#: of shorter ones the latency is most, which differs anyway
_LEAST_BYTES = 1 << 16


@dataclass(frozen=True)
class SlowLink:
    """Where messages move slowly.

    Attributes:
        kind: OF_HOST (all that leaves a host), BETWEEN_HOSTS (two of them), or OF_RANKS (a group of ranks, mostly two).
        ranks: that lose time by it: of the host, of both hosts, or of the group.
        hosts: names of the hosts; none of OF_RANKS.
        operation: of the messages that lose most.
        bytes: of each of them; ``transfer_ns``: how long one takes there; ``usual_ns``: elsewhere.
        groups: how many groups move slowly over it, of ``of_groups`` that were compared with each other.
        lost_ns: what the rank that loses most would move sooner in a step.
        exposed_ns: as much of that as it moves data in general while it computes nothing.
    """

    kind: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    operation: str
    bytes: int
    transfer_ns: float
    usual_ns: float
    groups: int
    of_groups: int
    lost_ns: float
    exposed_ns: float


def group_speeds(traces: Sequence[Trace], steps: Collection[int]) -> Speeds:
    """How long messages of each group take once their last rank has come, against the same messages of other groups.

    The same are those of one operation, size, number of ranks and number of hosts. What is usual among them is the lower quartile
    over the groups, since half of them may share a slow link. Groups that have nothing to compare with are left out.

    Returns:
        Rows as in ``GROUPS``: count of messages in a step, transfer_ns of one (median), usual_ns; and group -> its ranks.
    """
    of_steps = _speeds_by_steps(traces)
    key = tuple(sorted(steps))
    if key not in of_steps:
        of_steps[key] = _group_speeds(traces, key)
    return of_steps[key]


@once_per_run
def _speeds_by_steps(_: Sequence[Trace]) -> dict[tuple[int, ...], Speeds]:
    """The speeds of groups that were asked for, by the steps: none before the first."""
    return {}


def _group_speeds(traces: Sequence[Trace], steps: Sequence[int]) -> Speeds:
    times = message_times(traces).filter(pl.col("step").is_in(steps), pl.col("bytes") >= _LEAST_BYTES)
    hosts = {trace.rank: host_of(trace) for trace in traces}
    ranks_of = {str(name): tuple(sorted(rows["rank"].unique())) for (name,), rows in times.group_by("group")}
    hosts_of = {group: {hosts.get(rank, "") for rank in ranks} for group, ranks in ranks_of.items()}
    spread = {group: 0 if "" in names else len(names) for group, names in hosts_of.items()}
    # of a message, the side that waited for nothing but the data
    each = times.group_by("group", "operation", "step", "message").agg(
        pl.col("bytes").max(), pl.col("size").max(), moved_ns=pl.col("transfer_ns").max()
    )
    each = each.with_columns(hosts=pl.col("group").replace_strict(spread, default=0, return_dtype=pl.Int64))
    groups = each.group_by("group", *_ALIKE).agg(
        transfer_ns=pl.col("moved_ns").median(), messages=pl.len(), count=pl.len() / max(len(steps), 1)
    )
    groups = groups.filter(pl.col("messages") >= _LEAST_MESSAGES).filter(pl.len().over(_ALIKE) > 1)
    groups = groups.with_columns(usual_ns=pl.col("transfer_ns").quantile(0.25, "lower").over(_ALIKE))
    group = ["group", *_ALIKE]
    each = each.join(groups.select(*group, "usual_ns"), on=group, nulls_equal=True)
    is_late = pl.col("moved_ns") >= _SLOWER * pl.col("usual_ns")
    late = each.group_by(group).agg(late=is_late.cast(pl.Int64).sum())
    groups = groups.join(late, on=group, nulls_equal=True)
    groups = groups.with_columns(lost_ns=pl.col("count") * (pl.col("transfer_ns") - pl.col("usual_ns")))
    return groups.select(cast_columns(GROUPS)).sort("lost_ns", "group", descending=[True, False]), ranks_of


def find_slow_links(traces: Sequence[Trace], steps: Collection[int], step_ns: float) -> list[SlowLink]:
    """Where messages take half as long again as the same ones elsewhere, and that is 3 % of a step for a rank; most first.

    Of thousands of groups some do by chance, as single messages vary much: a group counts where chance alone would bring as many
    late messages about in one of all groups with 5 % or less, at the share that the quick groups have of them.

    A host is named where all that leaves it is slow, as far as it can be compared, two groups or more, and nothing else is. Where
    that is so of several, as of two that only exchange with each other, the way between them. Else each slow group by its ranks.

    Args:
        traces: of one job.
        steps: numbers of the steps that count.
        step_ns: how long a step takes.
    """
    groups, ranks_of = group_speeds(traces, steps)
    is_slow = pl.col("transfer_ns") >= _SLOWER * pl.col("usual_ns")
    slow = _beyond_chance(groups, is_slow)
    if slow.is_empty() or max(_lost_by_rank(slow, ranks_of).values()) < _SHARE * step_ns:
        return []
    exposed = _exposed_shares(traces, steps)
    hosts = {trace.rank: host_of(trace) for trace in traces}
    crossing = groups.filter(pl.col("hosts") > 1)
    touched = {group: {hosts[rank] for rank in ranks_of[group]} for group in crossing["group"].unique()}
    slow_names, quick_names = set(slow["group"]), set(crossing.filter(~is_slow)["group"])
    guilty = [
        name
        for name in sorted({name for names in touched.values() for name in names})
        if all(name in touched.get(group, ()) for group in slow_names)
        and not any(name in touched[group] for group in quick_names)
    ]
    if guilty and len(slow_names) > 1:
        ranks = tuple(sorted(rank for rank, name in hosts.items() if name in guilty))
        kind = OF_HOST if len(guilty) == 1 else BETWEEN_HOSTS
        return [_slow_link(kind, ranks, tuple(guilty), slow, groups, ranks_of, exposed)]
    links = []
    for name in slow["group"].unique(maintain_order=True):
        mine = slow.filter(group=name)
        if max(_lost_by_rank(mine, ranks_of).values()) >= _SHARE * step_ns:
            links.append(_slow_link(OF_RANKS, ranks_of[name], (), mine, groups, ranks_of, exposed))
    return _of_both_ways(links)


def _beyond_chance(groups: pl.DataFrame, is_slow: pl.Expr) -> pl.DataFrame:
    """The slow groups of which the number of late messages is not explained by how often messages are late in general."""
    quick = groups.filter(~is_slow).group_by(_ALIKE).agg(quick_late=pl.col("late").sum(), quick_messages=pl.col("messages").sum())
    of_kind = groups.group_by(_ALIKE).agg(groups=pl.len()).join(quick, on=_ALIKE, how="left", nulls_equal=True)
    slow = groups.filter(is_slow).join(of_kind, on=_ALIKE, how="left", nulls_equal=True, maintain_order="left")
    # one more of either, since what never was among a few may be all the same
    share = (pl.col("quick_late").fill_null(0) + 1) / (pl.col("quick_messages").fill_null(0) + 2)
    rows = slow.select("late", "messages", "groups", share=share).iter_rows()
    chances = [count * chance_of_at_least(late, messages, share_late) for late, messages, count, share_late in rows]
    return slow.select(groups.columns).filter(pl.Series(chances, dtype=pl.Float64) <= _CHANCE)


def _of_both_ways(links: Sequence[SlowLink]) -> list[SlowLink]:
    """One for what two ranks send each other in both directions, the one that loses more."""
    of_ranks: dict[tuple[int, ...], SlowLink] = {}
    for link in links:
        earlier = of_ranks.get(link.ranks)
        if earlier is None or link.lost_ns > earlier.lost_ns:
            of_ranks[link.ranks] = link
    return sorted(of_ranks.values(), key=lambda link: -link.lost_ns)


def _lost_by_rank(slow: pl.DataFrame, ranks_of: dict[str, tuple[int, ...]]) -> dict[int, float]:
    """What each rank loses by slow groups in a step, ns."""
    lost: dict[int, float] = {}
    for group, lost_ns in slow.select("group", "lost_ns").iter_rows():
        for rank in ranks_of[group]:
            lost[rank] = lost.get(rank, 0.0) + lost_ns
    return lost


def _exposed_shares(traces: Sequence[Trace], steps: Collection[int]) -> dict[int, float]:
    """Of the time in which the messages of each rank move data, the share in which it computes nothing."""
    in_steps = pl.col("step").is_in(sorted(steps))
    moving = message_times(traces).filter(in_steps).group_by("rank").agg(pl.col("transfer_ns").sum())
    exposed = exposed_waits(traces).filter(in_steps).group_by("rank").agg(pl.col("moving_ns").sum())
    shares = moving.join(exposed, on="rank").filter(pl.col("transfer_ns") > 0)
    return dict(shares.select("rank", (pl.col("moving_ns") / pl.col("transfer_ns")).clip(0, 1)).iter_rows())


def _slow_link(
    kind: str, ranks: tuple[int, ...], hosts: tuple[str, ...], slow: pl.DataFrame, groups: pl.DataFrame,
    ranks_of: dict[str, tuple[int, ...]], exposed: dict[int, float],
) -> SlowLink:  # fmt: skip
    most = slow.sort("lost_ns", descending=True).row(0, named=True)
    compared = groups.join(
        slow.select("operation", "bytes", "size", "hosts").unique(), on=["operation", "bytes", "size", "hosts"]
    )
    lost = _lost_by_rank(slow, ranks_of)
    loser = max(lost, key=lambda rank: lost[rank])
    return SlowLink(
        kind,
        ranks,
        hosts,
        most["operation"],
        most["bytes"],
        most["transfer_ns"],
        most["usual_ns"],
        slow["group"].n_unique(),
        compared["group"].n_unique(),
        lost[loser],
        lost[loser] * exposed.get(loser, 0.0),
    )
