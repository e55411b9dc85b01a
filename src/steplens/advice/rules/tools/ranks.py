"""What all rules that compare ranks share: how far each lies from the others, and which ranks are not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median

import polars as pl

from steplens.advice.facts import Facts, analyse_once
from steplens.advice.finding import Evidence
from steplens.analysis.step_words import number_ranges
from steplens.analysis.tools.parallel import PIPELINE_PARALLEL, Layout, layout
from steplens.run import Run
from steplens.trace.health import COMMUNICATION_TIMES, RANK_COMPARISON
from steplens.trace.trace import Trace

#: share of the mean by which a rank, a link or a stage may differ
DEVIATION = 0.20
#: of so many ranks and more at most such a part stands out, and so many are named
MANY_RANKS, _OFTEN, _MOST_OUTLYING = 32, 0.1, 8
#: share of a step that communication may take
COMMUNICATION = 0.10
#: ranges of ranks that are named
_NAMED = 8
#: checks of clocks that differ: messages bring the ranks on one clock, as far as they tell (``cluster.clocks.job_clocks``)
CLOCKS_DIFFER = ("rank_clock_offset", "rank_clock_set", "contradictory_messages")
_NO_OBSTACLES = ("missing_ranks", *CLOCKS_DIFFER, "unreadable", "rank_unknown")


def several_ranks(facts: Sequence[Facts]) -> bool:
    """Whether the run is of a job with several ranks."""
    return job_of(facts).size > 1


def is_parallel(facts: Sequence[Facts], mode: str) -> bool:
    """Whether the run is of a job with several ranks and one kind of parallelism."""
    job = job_of(facts)
    return job.size > 1 and job.mode == mode


def is_pipeline(facts: Sequence[Facts]) -> bool:
    """Whether the run is of a job with pipeline parallelism."""
    return is_parallel(facts, PIPELINE_PARALLEL)


def are_ranks_comparable(run: Run) -> bool:
    """Whether the ranks were recorded alike. Missing ranks and clocks that differ are no obstacle: lengths are compared."""
    unsafe = run.unsafe(RANK_COMPARISON)
    return unsafe.filter(~unsafe["check"].is_in(list(_NO_OBSTACLES))).is_empty()


def are_arrivals_known(run: Run) -> bool:
    """Whether anything but clocks that differ forbids to compare when ranks arrive."""
    doubts = pl.concat([run.unsafe(RANK_COMPARISON), run.unsafe(COMMUNICATION_TIMES)])
    return doubts.filter(~pl.col("check").is_in(list(CLOCKS_DIFFER))).is_empty()


def job_of(facts: Sequence[Facts]) -> Layout:
    """How the job of these traces is spread."""
    return analyse_once(layout, facts, traces_of(facts))


def traces_of(facts: Sequence[Facts]) -> list[Trace]:
    """The traces that may be judged."""
    return [part.trace for part in facts]


def outlying_ranks(off_by: Mapping[int, float], ranks: int) -> list[int]:
    """The ranks that are farthest from the mean of all, at most eight, in order of their numbers.

    None where more than a tenth of many ranks are as far from it: then they differ in kind, or from step to step, as the stages
    of a pipeline and very short steps do, and no one of them stands out.

    Args:
        off_by: by which share of the mean each is off, of those that are off by much.
        ranks: how many were compared.
    """
    if ranks >= MANY_RANKS and len(off_by) > _OFTEN * ranks:
        return []
    farthest = sorted(off_by, key=lambda rank: (-off_by[rank], rank))[:_MOST_OUTLYING]
    return sorted(farthest)


def beside_mean(values: Iterable[float], unit: str, scale: float = 1.0) -> Iterator[Evidence]:
    """Mean, median and median absolute deviation of what was compared."""
    numbers = [value * scale for value in values]
    middle = median(numbers)
    yield Evidence("mean_of_all", fmean(numbers), unit, per_step=False)
    yield Evidence("median_of_all", middle, unit, per_step=False)
    yield Evidence("deviation_of_all", median([abs(number - middle) for number in numbers]), unit, per_step=False)


def missing_rank_evidence(job: Layout) -> Iterator[Evidence]:
    """Says which ranks of the job are not here, where some are not."""
    if job.missing:
        yield Evidence("missing_ranks", len(job.missing), "count", places=(rank_range_text(job.missing),), per_step=False)


def rank_range_text(ranks: Sequence[int]) -> str:
    """Ranks in one place of evidence: "rank 3", or "ranks 0-2, 5"; of a job with holes all over, the first ranges only."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    range_texts = number_ranges(ranks).split(", ")
    return f"ranks {', '.join(range_texts[:_NAMED])}{' ...' if range_texts[_NAMED:] else ''}"
