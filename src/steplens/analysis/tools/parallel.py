"""How a job is spread over ranks: its kind of parallelism, its pipeline stages, which ranks are here, and what they wait for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from steplens.analysis.tools.joined_rows import join_rows
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.pipeline import find_pipeline
from steplens.trace.building.checks.ranks import recorded_ranks
from steplens.trace.schema import RECEIVE, SEND
from steplens.trace.trace import Trace

DATA_PARALLEL = "data"
MODEL_PARALLEL = "model"
PIPELINE_PARALLEL = "pipeline"
#: nothing tells what the ranks share
UNKNOWN_PARALLEL = ""

#: collectives that keep copies of one model equal; any other one says that ranks hold different parts of it
_KEEP_EQUAL = r"(?i)all_?reduce|broadcast|barrier"


@dataclass(frozen=True)
class Layout:
    """How a job is spread over ranks.

    Attributes:
        mode: ``DATA_PARALLEL``, ``MODEL_PARALLEL`` or ``PIPELINE_PARALLEL``; ``UNKNOWN_PARALLEL`` where nothing tells.
        ranks: the ranks that are here, in order.
        size: number of ranks of the job.
        stages: number of pipeline stages.
        placed: rank -> stage, of those whose messages tell; others are dealt to the stages in order.
    """

    mode: str
    ranks: tuple[int, ...]
    size: int
    stages: int
    placed: Mapping[int, int] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks of the job that are not here."""
        return tuple(sorted(set(range(self.size)) - set(self.ranks)))

    def stage_of(self, rank: int) -> int:
        """The pipeline stage of a rank, from 1."""
        return self.placed.get(rank, rank // max(self.size // self.stages, 1) + 1)


@once_per_run
def by_rank(traces: Sequence[Trace]) -> dict[int, list[Trace]]:
    """The traces of every known rank, in order of rank; of one rank there may be several windows."""
    traces_of_rank: dict[int, list[Trace]] = {}
    for trace in sorted(traces, key=lambda one: one.rank):
        if trace.rank >= 0:
            traces_of_rank.setdefault(trace.rank, []).append(trace)
    return traces_of_rank


@once_per_run
def layout(traces: Sequence[Trace]) -> Layout:
    """How the job of these traces is spread.

    The mode is what the source names: ``parallel_mode`` of ``meta``, where the automatic modes of MindSpore are pipeline
    parallel with several stages and model parallel with one. Where it names none: sends and receives mean pipeline parallel,
    all-reduces and broadcasts alone data parallel, other collectives model parallel. Collectives whose operation is not known,
    such as those launched before the recording, say nothing where others are known. The stages are those of ``stage_num`` in
    ``meta``, else what sends and receives tell (``find_pipeline``).
    """
    ranks = tuple(by_rank(traces))
    sizes = [value for trace in traces if type(value := trace.meta_value("world_size")) is int and 0 < value < 1 << 20]
    # groups of the whole job are known where its size is not
    groups = [trace.once(largest_group) for trace in traces if "communication" in trace]
    sizes += [count for count in groups if count is not None and 0 < count < 1 << 20]
    size = max([*sizes, recorded_ranks(traces)[1], max(ranks, default=-1) + 1], default=0)
    numbers = [value for trace in traces if type(value := trace.meta_value("stage_num")) is int]
    stages = max([number for number in numbers if 0 < number <= size], default=1)
    job_pipeline = find_pipeline(traces) if stages == 1 else None
    placed = job_pipeline.stage_of if job_pipeline is not None else {}
    stages = job_pipeline.stages if job_pipeline is not None else stages
    parallel_mode = next((str(mode) for trace in traces if (mode := trace.meta_value("parallel_mode"))), "")
    return Layout(_mode_from_name(parallel_mode, stages) or _mode_of(traces), ranks, size, stages, placed)


def _mode_from_name(named: str, stages: int) -> str:
    kind = named.lower().replace("_", "-").partition("-")[0]
    if kind in (DATA_PARALLEL, MODEL_PARALLEL, PIPELINE_PARALLEL):
        return kind
    if kind in ("auto", "semi", "hybrid"):
        return PIPELINE_PARALLEL if stages > 1 else MODEL_PARALLEL
    return UNKNOWN_PARALLEL


_KINDS = ("kind", "operation")


def communication_kinds(trace: Trace) -> pl.DataFrame:
    """Kinds and operations of communication that a trace has."""
    plain = {name: pl.col(name).cast(pl.String) for name in _KINDS}
    return trace.required("communication").select(**plain).unique().sort(_KINDS).collect()


def largest_group(trace: Trace) -> int | None:
    """How many ranks the largest group of a trace has; None where it says of none."""
    largest: int | None = trace.required("communication").select(pl.col("ranks").max()).collect().item()
    return largest


def _mode_of(traces: Sequence[Trace]) -> str:
    frames = (trace.once(communication_kinds) for trace in traces if "communication" in trace)
    groups = join_rows(itertools.chain([pl.DataFrame(schema=dict.fromkeys(_KINDS, pl.String))], frames))
    if groups["kind"].is_in([SEND, RECEIVE]).any():
        return PIPELINE_PARALLEL
    operations = groups["operation"].drop_nulls()
    if operations.is_empty():
        return UNKNOWN_PARALLEL
    return DATA_PARALLEL if operations.str.contains(_KEEP_EQUAL).all() else MODEL_PARALLEL


@dataclass(frozen=True)
class Rates:
    """Shares of (computation + communication outside it), summed over ranks; None where nothing is known.

    Attributes:
        communication: communication that no computing covers.
        between_stages: receives that nothing covers.
        within_stages: stage -> collectives that no computing covers, over the ranks of the stage.
    """

    communication: float | None
    between_stages: float | None
    within_stages: dict[int, float]


def communication_rates(means: pl.DataFrame) -> Rates:
    """Shares of communication in the steps of a job.

    Args:
        means: one row per rank, of ``cluster_steps.rank_means``.
    """
    unhidden_time = pl.col("computation_ns") + pl.col("communication_alone_ns")

    def share_of_time(part: str, rows: pl.DataFrame) -> float | None:
        complete_rows = rows.drop_nulls(["computation_ns", "communication_alone_ns", part])
        total = complete_rows.select(unhidden_time.sum()).item()
        return float(complete_rows[part].sum() / total) if complete_rows.height and total and total > 0 else None

    stages = {int(stage): means.filter(stage=stage) for stage in means["stage"].unique()}
    within = {stage: share_of_time("collective_alone_ns", rows) for stage, rows in stages.items()}
    return Rates(
        share_of_time("communication_alone_ns", means),
        share_of_time("receive_alone_ns", means),
        {stage: value for stage, value in sorted(within.items()) if value is not None},
    )
