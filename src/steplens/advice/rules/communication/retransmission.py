"""Operations over RDMA that take as long as a network card waits before it sends again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import HIGH, Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.trace.building.devices import NPU
from steplens.trace.health import COMMUNICATION_TIMES
from steplens.trace.run import Run

_TRANSPORT = "RDMA"
#: a card's time until it sends again
_TIMEOUT_MS = 4000.0


def judge(run: Run, facts: Sequence[Facts]) -> Iterator[Finding]:
    """Operations of which every rank that is here took 4 s and more, and some rank's transfers over RDMA did.

    Waiting for a late rank makes operations long as well, but not transfers. At least the 4 s of one time-out go.
    """
    frames = []
    for part in facts:
        own = pl.col("step").is_in(list(part.numbers))
        transit = part.trace.required("communication_bandwidth").filter(
            own & (pl.col("transport") == _TRANSPORT) & pl.col("transit_ms").is_finite()
        )
        transit = transit.group_by("name", "group", "step").agg(rdma_ms=pl.col("transit_ms").max())
        times = part.trace.required("communication_times").filter(own).select("name", "group", "step", "elapse_ms")
        texts = [pl.col(name).cast(pl.String) for name in ("name", "group")]
        joined = times.join(transit, on=["name", "group", "step"], how="left").with_columns(*texts)
        frames.append(joined.collect())
    if not frames:
        return
    each = (
        pl.concat(frames)
        .group_by("name", "group", "step")
        .agg(least_ms=pl.col("elapse_ms").min(), rdma_ms=pl.col("rdma_ms").max())
    )
    again = each.filter((pl.col("least_ms") >= _TIMEOUT_MS) & (pl.col("rdma_ms") > _TIMEOUT_MS)).sort(
        "rdma_ms", "name", descending=[True, False]
    )
    if again.is_empty():
        return
    steps = max(max(part.steps.height for part in facts), 1)
    lengths = [part.step_ns for part in facts if part.step_ns > 0]
    sent_ns = 1e6 * float(again["rdma_ms"].sum()) / steps
    timeouts_ns = 1e6 * _TIMEOUT_MS * again.height / steps
    yield Finding(
        rule=RULE.name,
        confidence=0.8,
        evidence=(
            Evidence(
                "long_rdma", sent_ns, "ns", tuple(again["step"].unique().sort().to_list()), tuple(again["name"].head(3).to_list())
            ),
            Evidence("long_rdma_operations", again.height, "count", per_step=False),
        ),
        saving=Saving(timeouts_ns, timeouts_ns, sent_ns),
        step_ns=sum(lengths) / len(lengths) if lengths else 0.0,
        urgency=HIGH,
    )


RULE = Rule("retransmission", rests_on=(COMMUNICATION_TIMES,), judge_run=judge, devices=(NPU,))
