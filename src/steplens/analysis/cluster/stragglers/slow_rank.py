"""The rank that the others of a job wait for again and again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import polars as pl

from steplens.analysis.cluster.arrivals import SlowRank, arrivals, slow_rank
from steplens.analysis.cluster.stragglers.own_work import RANK, Straggler, find_stragglers, own_work
from steplens.analysis.steps.times import chosen_step_times
from steplens.analysis.tools.pipeline import find_pipeline
from steplens.trace.trace import Trace

#: chance that ranks are named by their own work although they are equally fast: the thresholds allow no more
_CHANCE = 0.05


def name_slow_rank(traces: Sequence[Trace], steps: Collection[int], step_ns: float) -> SlowRank | None:
    """The rank that is late again and again in some steps of a run, and what that costs the others; None where none is.

    By the order of arrival at collectives (``arrivals.slow_rank``); where that names none, by what the ranks do themselves
    (``own_work.find_stragglers``). In a pipeline by the latter alone: a rank of one stage that waits for a slow one of another
    comes late to its collectives, too. Of a host that is slow no rank is named.

    What it costs a step is no more than the others wait in one: the exposed communication of the rank that waits the longest,
    or, where that is longer, its gradient synchronisation. A collective that computing hides may wait for free.

    Args:
        traces: of one run, of different ranks.
        steps: numbers of the steps that count.
        step_ns: how long a step takes.
    """
    stragglers = find_stragglers(traces, steps, step_ns)
    slow = next((_as_slow_rank(straggler) for straggler in stragglers if straggler.kind == RANK), None)
    knows_stages = find_pipeline(traces) is not None and own_work(traces).height > 0
    if not knows_stages and all(straggler.kind == RANK for straggler in stragglers):
        slow = slow_rank(arrivals(traces).filter(pl.col("step").is_in(sorted(steps))), step_ns) or slow
    if slow is None:
        return None
    exposed = pl.max_horizontal("exposed_communication_ns", "gradient_sync_ns")
    medians = [
        chosen_step_times(trace).filter(pl.col("step").is_in(sorted(steps))).select(exposed.median()).item()
        for trace in traces
        if trace.rank != slow.rank
    ]
    limits = [float(median) for median in medians if median is not None]
    return replace(slow, hold_up_ns=min(slow.hold_up_ns, round(max(limits)))) if limits else slow


def _as_slow_rank(straggler: Straggler) -> SlowRank:
    return SlowRank(straggler.ranks[0], round(straggler.more_ns), straggler.steps, straggler.of_steps, _CHANCE)
