"""Why a rank comes late: the part of the step that takes it longer than the others, and what runs longer there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence
from steplens.advice.rules.tools.ranks import traces_of
from steplens.advice.rules.tools.tasks import most_of_others, named_places
from steplens.analysis.cluster.late_work import late_calls, late_parts
from steplens.analysis.data_loading.loaders import stages
from steplens.analysis.steps.phases import BETWEEN, host_phase_names

#: column of step times -> what words and cases call the part
_PARTS = {
    "data_wait_ns": "data",
    "forward_ns": "forward",
    "backward_ns": "backward",
    "optimizer_ns": "optimizer",
    "device_wait_ns": "device_wait",
    "between_ns": "between",
    "python_ns": "python",
    "computing_ns": "computing",
    "exposed_copy_ns": "copy",
    "idle_ns": "idle",
}
#: what takes a rank longer by this share of what it holds the others up is why it is late
LEAST_SHARE = 1 / 3
#: what is slower by this share of what a call is slower by is as slow
_AS_SLOW = 0.5


@dataclass(frozen=True)
class Lateness:
    """Why a rank is late.

    Attributes:
        parts: columns of step times of the parts that take it longer than the others, by most first; empty where none is known.
        evidence: what proves it.
        call: the operator or function of the first part that is most of it; empty where none is, and where a device computes
            everything more slowly.
    """

    parts: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    call: str = ""

    @property
    def words_case(self) -> str:
        """Which words say it: of loading data its own, else of the call where one is named, else of the part."""
        if not self.parts:
            return ""
        part = _PARTS[self.parts[0]]
        return "one_call" if self.call and part != "data" else f"late_{part}"


def explain_lateness(facts: Sequence[Facts], rank: int, hold_up_ns: float) -> Lateness:
    """Why a rank holds others up by so much in a step; see ``late_work.late_parts``.

    Args:
        facts: of all ranks.
        rank: the late one.
        hold_up_ns: by how much.
    """
    least_ns = LEAST_SHARE * hold_up_ns
    rows = late_parts(traces_of(facts), rank).filter(pl.col("more_ns") > least_ns)
    evidence: list[Evidence] = []
    call = ""
    for place, (part, own_part_ns, other_ns, more_ns) in enumerate(rows.iter_rows()):
        more = Evidence(f"more_{_PARTS[part]}", more_ns, "ns", places=(f"rank {rank}",), of_mean=True)
        evidence.append(_with_calls_between_phases(more, facts, rank) if part == "between_ns" else more)
        evidence.append(Evidence("others_in_that_part", other_ns, "ns", of_mean=True))
        if place:
            continue
        if part == "data_wait_ns":
            evidence += _slower_stage(facts, rank)
        calls = _longer_calls(facts, rank, part, least_ns)
        for kind, name, own_ns, of_others_ns, _ in calls.iter_rows():
            rest_ns, rest_of_others_ns = own_part_ns - own_ns, other_ns - of_others_ns
            if part != "computing_ns" or not _is_as_slow(rest_ns, rest_of_others_ns, own_ns, of_others_ns):
                call = call or name
            evidence.append(Evidence(f"in_one_{kind}", own_ns, "ns", places=(f"rank {rank}", name), of_mean=True))
            evidence.append(Evidence("others_in_that_call", of_others_ns, "ns", of_mean=True))
        if part == "python_ns" and calls.is_empty() and all("python" not in trace for trace in traces_of(facts)):
            evidence.append(Evidence("no_python_calls", 0, "", per_step=False))
    return Lateness(tuple(rows["part"]), tuple(evidence), call)


def _is_as_slow(rest_ns: float, rest_of_others_ns: float, own_ns: float, of_others_ns: float) -> bool:
    """Whether what a device computes besides a call is slower by as much, or half of that: then the call is not the reason."""
    if rest_of_others_ns <= 0 or of_others_ns <= 0:
        return False
    return rest_ns / rest_of_others_ns - 1 >= _AS_SLOW * (own_ns / of_others_ns - 1)


def _longer_calls(facts: Sequence[Facts], rank: int, part: str, least_ns: float) -> pl.DataFrame:
    """The function and the operator that take the rank longer in a part by more than ``least_ns``, as rows of ``late_calls``.

    The one with more stands first: a function has what its operators take, and there it can be changed.
    """
    calls = late_calls(traces_of(facts), rank, part).filter(pl.col("more_ns") > least_ns)
    return calls.unique("kind", keep="first", maintain_order=True)


def _slower_stage(facts: Sequence[Facts], rank: int) -> Iterator[Evidence]:
    """The stage of a loader that takes the rank longer than the others for a batch, by most; loaders go by their data set."""
    means: dict[tuple[str, str], dict[int, float]] = {}
    for part in facts:
        if "pipeline_tasks" not in part.trace or "pipeline_loaders" not in part.trace:
            continue
        loaders = part.trace.required("pipeline_loaders").select("loader", pl.col("dataset").cast(pl.String)).collect()
        for loader, stage, mean_ns in stages(part.trace).select("loader", "stage", "mean_ns").iter_rows():
            name = next(iter(loaders.filter(loader=loader)["dataset"].drop_nulls()), None)
            if name is not None and mean_ns is not None:
                means.setdefault((name, stage), {})[part.trace.rank] = mean_ns
    more = {
        key: (of_ranks[rank], median(mean_ns for number, mean_ns in of_ranks.items() if number != rank))
        for key, of_ranks in means.items()
        if rank in of_ranks and len(of_ranks) > 1
    }
    if more:
        (dataset, stage), (own_ns, other_ns) = max(more.items(), key=lambda item: item[1][0] - item[1][1])
        if own_ns > other_ns:
            places = (f"rank {rank}", f"DataLoader({dataset})")
            yield Evidence(f"slower_{stage}", own_ns, "ns", places=places, per_step=False)
            yield Evidence("others_in_that_stage", other_ns, "ns", per_step=False)


def _with_calls_between_phases(evidence: Evidence, facts: Sequence[Facts], rank: int) -> Evidence:
    """Evidence about a rank with what all calls between the phases of its steps take, and those that take most of it."""
    of_rank = [part for part in facts if part.trace.rank == rank]
    steps = sum(len(part.numbers) for part in of_rank)
    frames = [part.trace.once(host_phase_names).filter(pl.col("step").is_in(list(part.numbers))) for part in of_rank]
    between = pl.concat(frames).filter(pl.col("phase") == BETWEEN).group_by("name").agg(pl.col("time_ns").sum())
    between = between.sort("time_ns", "name", descending=[True, False])
    lengths = [time_ns / max(steps, 1) for time_ns in between["time_ns"]]
    total_ns = sum(lengths)
    name_count = named_places(lengths, total_ns)
    return replace(
        evidence,
        places=(*evidence.places, *map(str, between["name"][:name_count])),
        places_ns=(total_ns, *lengths[:name_count]),
        other_places=len(lengths) - name_count,
        other_places_ns=sum(lengths[name_count:]),
        other_most=most_of_others(lengths, total_ns, name_count),
    )
