"""The processors of the host are busy: work on the data competes with everything else that runs there."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import MEDIUM, Evidence, Finding
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.pressure import at_most, pressure
from steplens.analysis.data_loading.pipeline_cpu import HOST, HOST_PARTS, PROCESS, cpu_means, cpu_samples, host_idle
from steplens.trace.health import COUNTERS
from steplens.trace.schema import CORE_CPU

#: share of the processors that should be idle
LEAST_IDLE = 0.20


def judge(facts: Facts, *, least_idle: float = LEAST_IDLE) -> Iterator[Finding]:
    """Less than 20 % of the processors idle, on average over the samples that the data pipeline took.

    Where the CPU does the training itself it should be busy, and nothing is said.
    """
    if "pipeline_samples" not in facts.trace or ("kernels" in facts.trace and facts.device == CORE_CPU):
        return
    means = cpu_means(cpu_samples(facts.trace))
    host = means.filter(pl.col("scope") == HOST)
    named = {name: mean for name, mean in host.select("name", "mean").iter_rows() if mean is not None}
    idle = host_idle(means)
    if idle is None or idle / 100 >= least_idle:
        return
    # MindSpore 2.10 cuts the samples of some parts off; those of idle time are whole
    known = HOST_PARTS[:3] if facts.trusts(COUNTERS) else ()
    shares = {part: named[key] for part in known if (key := f"{part}_utilization") in named}
    parts = [Evidence(f"{part}_time", share, "%", per_step=False) for part, share in shares.items()]
    own = means.filter((pl.col("scope") == PROCESS) & (pl.col("name") == "user_utilization"))["mean"].to_list()
    if own:
        parts.append(Evidence("process_time", float(own[0]), "%", per_step=False))
    yield Finding(
        rule=RULE.name,
        confidence=0.5,
        evidence=(Evidence("busy_time", 100 - idle, "%", per_step=False), *parts),
        step_ns=facts.step_ns,
        urgency=at_most(pressure(facts), MEDIUM),
        values={"percent": f"{100 - idle:.0f}"},
    )


RULE = Rule("busy_host", judge)
