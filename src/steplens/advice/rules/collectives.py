"""Collectives that take far longer than what they move explains, where nobody knows whom they wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Any

import polars as pl

from steplens.advice.facts import Facts, analyse_once
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import run_rule
from steplens.advice.rules.tools.digits import in_digits
from steplens.advice.rules.tools.ranks import job_of, missing_rank_evidence, several_ranks, traces_of
from steplens.analysis.cluster.collectives import compared_collective, unexplained_by_step, unexplained_collectives
from steplens.analysis.verdict_words import collective_name
from steplens.run import Run
from steplens.trace.health import COMMUNICATION_TIMES, STEP_DEVICE_TIMES

#: what takes less of a step is not worth a recording of all ranks
_LEAST_SHARE = 0.03
#: collectives that are named
_NAMED = 3
_SYMPTOMS = ("data_parallel_communication", "model_parallel_communication", "unknown_parallel_communication")


def _lacks_ranks(facts: Sequence[Facts]) -> bool:
    """Whether the run is of a job of which ranks were not recorded."""
    return several_ranks(facts) and bool(job_of(facts).missing)


@run_rule(rests_on=(COMMUNICATION_TIMES, STEP_DEVICE_TIMES), applies=_lacks_ranks, explains=_SYMPTOMS)
def long_collectives(_: Run, facts: Sequence[Facts], *, threshold: float = _LEAST_SHARE) -> Iterator[Finding]:
    """Collectives take several times what their sizes explain, and ranks that would tell why are missing.

    See ``analysis.cluster.collectives``: at least three times as long as those of the same kind that move as much or more, and
    exposed for 3 % of a step beyond that. A rank that comes late, or the network: the order of arrival of all ranks tells.

    At stake is what exceeds the expected time, as far as it is exposed, on the recorded rank that has the most of it, and
    no more than the mean of the ranks. A recording of all ranks saves nothing of it: it says whom to mend.
    """
    traces = traces_of(facts)
    by_step = analyse_once(unexplained_by_step, facts, traces)
    by_rank = [float(median(rows["beyond_ns"].to_list())) for _, rows in by_step.group_by("rank") if rows.height]
    lengths = [part.step_ns for part in facts if part.step_ns > 0]
    if not by_rank or not lengths or min(by_rank) < threshold * fmean(lengths):
        return
    calls = analyse_once(unexplained_collectives, facts, traces)
    ranks = calls.select("rank", "step").n_unique()
    took_ns, expected_ns = (float(calls[name].sum()) / ranks for name in ("duration_ns", "expected_ns"))
    leading = calls["operation"].mode().sort()[0]
    compared = compared_collective(calls.sort("beyond_ns", descending=True).row(0, named=True), traces)
    yield Finding(
        rule=long_collectives.name,
        confidence=0.6,
        evidence=(
            Evidence("long_collectives", took_ns, "ns", tuple(calls["step"].unique().sort().to_list())),
            *_longest_calls(calls),
            Evidence("explained_by_size", expected_ns, "ns", places=_call_places(compared)),
            *_measured_by_library(calls, ranks),
            Evidence("waiting_unknown", 0, ""),
            *missing_rank_evidence(job_of(facts)),
        ),
        saving=Saving(0.0, 0.0, min(max(by_rank), took_ns - expected_ns)),
        step_ns=fmean(lengths),
        part="exposed_communication_ns",
        at_stake=True,
        values={
            # a lower bound is not rounded up
            "times": str(int(took_ns / expected_ns + 1e-9)),
            "operation": collective_name(leading),
            "count": in_digits(calls.height / ranks),
            "time": f"{took_ns / 1e6:.2f}",
            "expected": f"{expected_ns / 1e6:.2f}",
            "size": f"{compared['bytes'] / (1 << 20):.2f}",
            "takes": f"{compared['duration_ns'] / 1e6:.2f}",
        },
    )


def _longest_calls(calls: pl.DataFrame) -> Iterator[Evidence]:
    """The collectives that exceed their expected time the most, one of each operation and size."""
    for row in (
        calls.sort("beyond_ns", descending=True)
        .unique(["operation", "bytes"], maintain_order=True)[:_NAMED]
        .iter_rows(named=True)
    ):
        yield Evidence("one_collective", row["duration_ns"], "ns", (row["step"],), _call_places(row), per_step=False)


def _call_places(call: Mapping[str, Any]) -> tuple[str, str, str]:
    """A collective in three places of evidence: the name of its event, what it moves, its rank."""
    size = f"{collective_name(call['operation'])} {call['bytes'] / (1 << 20):.2f} MiB"
    return call["name"], size, f"rank {call['rank']}"


def _measured_by_library(calls: pl.DataFrame, ranks: int) -> Iterator[Evidence]:
    """How long data moved in them, where the communication library measured it."""
    moved = calls["transfer_ns"]
    if not moved.null_count():
        yield Evidence("moved_by_library", float(moved.sum()) / ranks, "ns")
