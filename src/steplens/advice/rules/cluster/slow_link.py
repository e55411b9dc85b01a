"""A link between two ranks moves data more slowly than the other links of its kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.cluster.comparison import DEVIATION, job_of, missing, several_ranks, traces_of
from steplens.analysis.cluster.links import link_means, links, slow_links
from steplens.trace.health import COMMUNICATION_VOLUME
from steplens.trace.run import Run


def judge(_: Run, facts: Sequence[Facts], *, threshold: float = DEVIATION) -> Iterator[Finding]:
    """Links whose bandwidth (bytes / time) lies by more than 20 % below the mean of their transport.

    At the mean bandwidth the transfer would take that share less; where computing covers it, nothing is saved, so the low end
    is nothing.

    Args:
        facts: of the ranks.
        threshold: share of the mean.
    """
    traces = traces_of(facts)
    found = links(traces)
    lengths = [part.step_ns for part in facts if part.step_ns > 0]
    for row in slow_links(link_means(found), threshold=threshold).iter_rows(named=True):
        source, target, transport = row["source"], row["destination"], row["transport"] or "?"
        same = (pl.col("source") == source) & (pl.col("destination") == target)
        steps = tuple(found.filter(same)["step"].unique().sort().to_list())
        more = row["time_ns"] * row["below"]
        ends = (f"rank {source} -> rank {target}",)
        yield Finding(
            rule=RULE.name,
            subject=f"{source}-{target}-{transport}",
            confidence=0.6,
            evidence=(
                Evidence("bandwidth", row["bytes_per_s"] / 1e9, "GB/s", steps, ends, per_step=False),
                Evidence("below_mean", 100 * row["below"], "%", per_step=False),
                Evidence("mean_of_all", row["mean_bytes_per_s"] / 1e9, "GB/s", per_step=False),
                Evidence("median_of_all", row["median_bytes_per_s"] / 1e9, "GB/s", per_step=False),
                Evidence("deviation_of_all", row["deviation_bytes_per_s"] / 1e9, "GB/s", per_step=False),
                Evidence("moved_bytes", row["bytes"], "bytes"),
                *missing(job_of(facts)),
            ),
            saving=Saving(0, more / 2, more) if lengths else None,
            step_ns=fmean(lengths) if lengths else 0.0,
            part="exposed_communication_ns",
            values={"source": source, "target": target, "transport": transport, "percent": f"{100 * row['below']:.2f}"},
            urgency=LOW,
        )


RULE = Rule("slow_link", rests_on=(COMMUNICATION_VOLUME,), judge_run=judge, applies=several_ranks)
