"""What the process groups of a job are for: data, tensor, pipeline parallelism ..., from their names or from what they do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import polars as pl

from steplens.analysis.cluster.clocks.messages import communication_rows
from steplens.analysis.cluster.groups.members import ProcessGroup, group_of_name, identified_groups, process_groups
from steplens.analysis.steps.phases import phase_intervals
from steplens.analysis.tools.once import once_per_run, once_per_trace
from steplens.analysis.tools.overlap import length_inside
from steplens.analysis.tools.parallel import DATA_PARALLEL, layout
from steplens.analysis.tools.schemas import table_schema
from steplens.trace.schema import COLLECTIVE
from steplens.trace.trace import Trace

DATA, TENSOR, PIPELINE, CONTEXT, EXPERT = "data", "tensor", "pipeline", "context", "expert"
#: tensor and pipeline parallelism together; other kinds together; input and output embeddings, of the first and last stage
MODEL, SEVERAL, EMBEDDING, ALL = "model", "several", "embedding", "all"
#: nothing tells
UNTOLD = ""

#: why a group is of a kind
BY_NAME = "its name"
BY_MESSAGES = "sends and receives alone"
BY_FORWARD = "it reduces in the forward pass"
BY_BACKWARD = "it reduces outside of the forward pass alone"
BY_MODE = "the only group of the job, and it keeps copies of one model equal"
BY_SIZE = "all ranks of the job"
UNTOLD_REASON = "cannot be told: neither its name nor what it does is of one kind"

#: words of names, by what they say; a name that says model says tensor or pipeline or expert as well, or tensor alone
_WORDS = {
    DATA: "data dp ddp fsdp hsdp sdp edp replicate shard zero",
    TENSOR: "tensor tp etp",
    PIPELINE: "pipeline pp",
    CONTEXT: "context cp sequence sp ulysses",
    EXPERT: "expert ep exp moe",
    MODEL: "model mp",
    EMBEDDING: "embedding embd embed",
    ALL: "default world",
}
_KIND_OF_WORD = {word: kind for kind, words in _WORDS.items() for word in words.split()}
_REDUCES = r"(?i)all_?reduce|reduce_?scatter"
#: less of what a group reduces in the forward pass is statistics, of batches or of the loss
_LEAST_IN_FORWARD = 0.2

_REDUCED = table_schema("group: String, reduced: Float64, in_forward: Float64")


@dataclass(frozen=True)
class GroupKind:
    """What a group is for, and what says so."""

    group: ProcessGroup
    kind: str
    reason: str


def kind_of_name(description: str) -> str:
    """The kind that a name says, such as "TENSOR_MODEL_PARALLEL_GROUP", "mesh_dp" or "dp_cp"; empty where it says none.

    Gradients are averaged over data and context parallelism at once ("DATA_PARALLEL_GROUP_WITH_CP"), and those of experts over
    the data parallelism of experts: both are data parallelism. Tensor parallelism inside of experts is tensor parallelism.
    """
    words = re.findall("[a-z]+", description.lower())
    kinds = {_KIND_OF_WORD[word] for word in words if word in _KIND_OF_WORD}
    if MODEL in kinds and len(kinds) > 1:
        kinds.discard(MODEL)
    if EMBEDDING in kinds:
        return EMBEDDING
    if kinds <= {DATA, CONTEXT, EXPERT} and DATA in kinds:
        return DATA
    if kinds == {TENSOR, EXPERT} and "and" not in words:
        return TENSOR
    if kinds == {TENSOR, PIPELINE}:
        return MODEL
    return next(iter(kinds)) if len(kinds) == 1 else SEVERAL if kinds else UNTOLD


@once_per_run
def group_kinds(traces: Sequence[Trace]) -> dict[ProcessGroup, GroupKind]:
    """What each group of ``process_groups`` is for. What the first of these says counts:

    1. its name, of a group that is not called after all ranks (``kind_of_name``);
    2. sends and receives and nothing else: pipeline parallelism;
    3. when it reduces, where the phases of the host are known: with a fifth of the bytes or more launched in the forward pass it
       is tensor parallelism, which adds up activations; with less it is data parallelism, which averages gradients, unless
       the group has all ranks and there are others;
    4. of a job with one group, whether its collectives keep copies of one model equal (``tools.parallel.layout``): data
       parallelism;
    5. all ranks of the job: ``all``. Else nobody can tell, and the kind is empty.

    Args:
        traces: of one job.
    """
    groups = process_groups(traces)
    reduced, operations = _reduced_by_group(traces)
    used = [group for group in groups if group.users]
    kinds = {}
    for group in groups:
        kind_by_name = kind_of_name(group.description)
        is_of_all = group.size == layout(traces).size
        share = reduced.get(group)
        is_only = len(used) == 1 and used[0] == group
        if kind_by_name not in (UNTOLD, ALL):
            verdict = (kind_by_name, BY_NAME)
        elif operations.get(group) == {False}:
            verdict = (PIPELINE, BY_MESSAGES)
        elif share is not None and share >= _LEAST_IN_FORWARD:
            verdict = (TENSOR, BY_FORWARD)
        elif share is not None and (is_only or not is_of_all):
            verdict = (DATA, BY_BACKWARD)
        elif is_only and is_of_all and layout(traces).mode == DATA_PARALLEL:
            verdict = (DATA, BY_MODE)
        elif is_of_all:
            verdict = (ALL, BY_SIZE)
        else:
            verdict = (UNTOLD, UNTOLD_REASON)
        kinds[group] = GroupKind(group, *verdict)
    return kinds


def _reduced_by_group(traces: Sequence[Trace]) -> tuple[dict[ProcessGroup, float], dict[ProcessGroup, set[bool]]]:
    """Of each group the share of what it reduces in the forward pass, where that is known, and whether it does collectives."""
    groups = identified_groups(traces)
    sums: dict[ProcessGroup, list[tuple[float, float]]] = {}
    operations: dict[ProcessGroup, set[bool]] = {}
    for trace in traces:
        if trace.rank < 0:
            continue
        for name, reduced, in_forward in forward_reductions(trace).iter_rows():
            if (group := groups.get(group_of_name(trace, name))) is not None:
                sums.setdefault(group, []).append((reduced, in_forward))
        rows = communication_rows(trace).select("group", is_collective=pl.col("kind") == COLLECTIVE).unique()
        for name, is_collective in rows.iter_rows():
            operations.setdefault(groups[group_of_name(trace, name)], set()).add(is_collective)
    totals = {group: reduce(_add_pairs, pairs) for group, pairs in sums.items()}
    return {group: forward / total for group, (total, forward) in totals.items() if total > 0}, operations


def _add_pairs(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return one[0] + other[0], one[1] + other[1]


@once_per_trace
def forward_reductions(trace: Trace) -> pl.DataFrame:
    """What each group of a rank reduces in its steps, and how much of it was launched in the forward pass: columns ``_REDUCED``.

    In bytes; in operations where the bytes of one are not known. No rows where the phases of the host are not known.
    """
    phases = phase_intervals(trace) if "communication" in trace else None
    if phases is None or not phases.complete or not len(phases.forward.start) or not len(phases.backward.start):
        return pl.DataFrame(schema=_REDUCED)
    rows = (
        trace.required("communication")
        .filter(pl.coalesce(pl.col("operation").cast(pl.String), pl.col("name").cast(pl.String)).str.contains(_REDUCES))
        .select("step", "bytes", group=pl.col("group").cast(pl.String).fill_null(""), begin="launch_ns", start_ns="start_ns")
        .drop_nulls("step")
        .collect()
    )
    # what the CPU does itself it does where it stands
    rows = rows.with_columns(begin=pl.col("begin") if trace.has_accelerator else pl.col("start_ns")).drop_nulls("begin")
    begin = rows["begin"].to_numpy()
    in_forward = length_inside(phases.forward, begin, begin + 1) > 0
    are_known = rows["bytes"].null_count() == 0
    rows = rows.with_columns(
        size=pl.col("bytes").cast(pl.Float64) if are_known else pl.lit(1.0), is_forward=pl.Series(in_forward)
    )
    return (
        rows.group_by("group")
        .agg(reduced=pl.col("size").sum(), in_forward=pl.col("size").filter("is_forward").sum())
        .sort("group")
        .select(*_REDUCED)
    )
