"""The process groups of a job with what they cost in a step, and how its parallelism is laid out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import polars as pl

from steplens.analysis.cluster.clocks.job_clocks import host_of
from steplens.analysis.cluster.communication_operations import named_operations
from steplens.analysis.cluster.groups.kinds import CONTEXT, DATA, EXPERT, PIPELINE, TENSOR, GroupKind, group_kinds
from steplens.analysis.cluster.groups.members import ProcessGroup, group_of_name, identified_groups
from steplens.analysis.cluster.stragglers.message_times import message_times
from steplens.analysis.steps.choice import chosen_steps
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.parallel import by_rank, layout
from steplens.analysis.tools.pipeline import find_pipeline
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

GROUPS = table_schema(
    "group: String, description: String, kind: String, reason: String, ranks, recorded, members: String, hosts, "
    "spans_hosts: Boolean, operations, operations_per_step: Float64, bytes_per_step: Float64, duration_ns: Float64, "
    "wait_ns: Float64, transfer_ns: Float64, unexplained_ns: Float64"
)
LAYOUT = table_schema("ranks, data, tensor, pipeline, context, expert, reason: String")
#: so many numbers in a row or more are a range
_RUN = 3
#: what multiplies to the number of ranks; experts are spread over those of data parallelism
_FACTORS = (DATA, TENSOR, PIPELINE, CONTEXT)
BY_GROUPS = "the sizes of the groups multiply to the number of ranks"
NO_GROUPS = "cannot be told: no group of the job is known to be for data, tensor or pipeline parallelism"
OTHER_SIZES = "cannot be told: the sizes of the groups do not multiply to the number of ranks"
SEVERAL_WAYS = "cannot be told: the sizes of the groups multiply to the number of ranks in more than one way"


@once_per_run
def process_group_table(traces: Sequence[Trace]) -> pl.DataFrame:
    """One row per group, the largest first; columns as in ``GROUPS``.

    * ``ranks``: how many it has, null where that is not known; ``members``: which, as the job numbers them; where nobody recorded
      them, those of the ``recorded`` ones that took part. ``kind`` and ``reason``: see ``kinds.group_kinds``; the kind is empty
      where it cannot be told.
    * ``hosts``: over how many computers it is spread, where the computer of every member is known; ``spans_hosts``: whether there
      is more than one, which two members may tell.
    * ``operations``: in the steps of the recording, over all ranks. ``operations_per_step``, ``bytes_per_step``, ``duration_ns``,
      ``wait_ns``, ``transfer_ns``: of a rank in a step, a mean over the chosen steps of the ranks that took part; sums over
      operations, as ``communication`` has them. ``bytes_per_step``: as recorded, null where the bytes of an operation are not.
      Waiting is until the last rank of a message has come, or what the library measured, of sends and receives too;
      ``unexplained_ns``: of what neither tells.
    """
    rows = _group_operations(traces)
    kinds = group_kinds(traces)
    numbers = {group: number for number, group in enumerate(kinds)}
    host_of_rank = {rank: host_of(windows[0]) for rank, windows in by_rank(traces).items()}
    steps = _chosen_pairs(traces)
    costs = {number: of_group for (number,), of_group in rows.group_by("number")} if rows.height else {}
    table = []
    for group, group_kind in kinds.items():
        of_group = costs.get(numbers[group], rows.clear())
        pairs = steps.filter(pl.col("rank").is_in(group.users)).height
        table.append(
            {
                **_group_columns(group, group_kind, host_of_rank),
                "operations": of_group.height,
                **_step_costs(of_group, steps, pairs),
            }
        )
    return pl.DataFrame(table, schema=GROUPS)


def _group_columns(group: ProcessGroup, group_kind: GroupKind, host_of_rank: dict[int, str]) -> dict[str, object]:
    hosts = {host for rank in group.members if (host := host_of_rank.get(rank))}
    are_known = group.is_whole and all(host_of_rank.get(rank) for rank in group.members)
    return {
        "group": group.name,
        "description": group.description or None,
        "kind": group_kind.kind,
        "reason": group_kind.reason,
        "ranks": group.size,
        "recorded": sum(rank in host_of_rank for rank in group.members),
        "members": ranks_text(group.members),
        "hosts": len(hosts) if are_known else None,
        "spans_hosts": True if len(hosts) > 1 else False if are_known else None,
    }


def _step_costs(rows: pl.DataFrame, steps: pl.DataFrame, pairs: int) -> dict[str, float | None]:
    """What the operations of a group cost in a step; nothing where none was chosen."""
    if not pairs:
        return {}
    in_steps = rows.join(steps, on=["rank", "step"], how="semi")
    waited = in_steps.filter(pl.col("wait_ns").is_not_null() & pl.col("transfer_ns").is_not_null())
    duration, wait, transfer = (
        float(frame[name].sum()) / pairs
        for frame, name in ((in_steps, "duration_ns"), (waited, "wait_ns"), (waited, "transfer_ns"))
    )
    return {
        "operations_per_step": in_steps.height / pairs,
        "bytes_per_step": None if in_steps["bytes"].null_count() else float(in_steps["bytes"].sum()) / pairs,
        "duration_ns": duration,
        "wait_ns": wait if waited.height else None,
        "transfer_ns": transfer if waited.height else None,
        "unexplained_ns": max(duration - wait - transfer, 0.0) if waited.height else None,
    }


def _group_operations(traces: Sequence[Trace]) -> pl.DataFrame:
    """The operations of all ranks in steps, with the number of their group; what is known of their waiting."""
    groups = identified_groups(traces)
    numbers = {group: number for number, group in enumerate(group_kinds(traces))}
    of_name = [
        (trace.rank, name, numbers[groups[described]])
        for trace in traces
        if trace.rank >= 0 and "communication" in trace
        for name in trace.required("communication")
        .select(pl.col("group").cast(pl.String).fill_null(""))
        .unique()
        .collect()["group"]
        if (described := group_of_name(trace, name)) in groups
    ]
    number_of_name = pl.DataFrame(
        of_name, schema={"rank": pl.Int64, "group": pl.String, "number": pl.Int64}, orient="row"
    ).unique()
    rows = (
        named_operations(traces)
        .drop("number")
        .drop_nulls("step")
        .join(number_of_name, on=["rank", "group"], maintain_order="left")
    )
    sides = message_times(traces).select(
        "rank", "kind", start_ns="own_start_ns", waited_ns="wait_ns", moved_ns="transfer_ns",
        duration_ns=pl.col("wait_ns") + pl.col("transfer_ns"),
    )  # fmt: skip
    key = ["rank", "kind", "start_ns", "duration_ns"]
    rows = rows.join(sides.unique(key, keep="none"), on=key, how="left", maintain_order="left")
    return rows.with_columns(
        wait_ns=pl.coalesce("wait_ns", "waited_ns"), transfer_ns=pl.coalesce("transfer_ns", "moved_ns")
    ).drop("waited_ns", "moved_ns")


def _chosen_pairs(traces: Sequence[Trace]) -> pl.DataFrame:
    """The steps, by rank and step, that figures are of; of a rank that has none of these, of all its steps."""
    pairs = []
    for rank, windows in by_rank(traces).items():
        step_ids = {step for window in windows for step in chosen_steps(window).steps}
        recorded = {step for window in windows for step in window.required("steps").select("id").collect()["id"]}
        pairs += [(rank, step) for step in sorted(step_ids or recorded)]
    return pl.DataFrame(pairs, schema={"rank": pl.Int64, "step": pl.Int64}, orient="row")


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks in order as a text, three or more in a row as a range: "0-7, 16, 24"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [[f"{run[0]}-{run[-1]}"] if len(run) >= _RUN else map(str, run) for run in runs]
    return ", ".join(itertools.chain.from_iterable(parts))


@once_per_run
def parallel_layout(traces: Sequence[Trace]) -> pl.DataFrame:
    """How many ranks share what, one row; columns as in ``LAYOUT``. No rows of fewer than two ranks.

    data x tensor x pipeline x context = ``ranks`` of the job; ``expert``: over how many ranks of data parallelism experts are
    spread. The sizes are those of groups that are known to be for one of them (``kinds.group_kinds``), the number of stages is
    what sends and receives tell (``tools.pipeline``), where they do; of what no group is for there is 1. Null, and why in
    ``reason``, where they do not multiply to the number of ranks, or do so in several ways.
    """
    size = layout(traces).size
    if size < 2:
        return pl.DataFrame(schema=LAYOUT)
    sizes: dict[str, set[int]] = {}
    for group, group_kind in group_kinds(traces).items():
        if group.size is not None and (group.users or group.description):
            sizes.setdefault(group_kind.kind, set()).add(group.size)
    found_pipeline = find_pipeline(traces)
    if found_pipeline is not None:
        sizes[PIPELINE] = {found_pipeline.stages}
    expert = sizes.get(EXPERT, set())
    row = {"ranks": size, "expert": next(iter(expert)) if len(expert) == 1 else None if expert else 1}
    if not any(sizes.get(kind) for kind in _FACTORS):
        return pl.DataFrame([{"ranks": size, "reason": NO_GROUPS}], schema=LAYOUT)
    choices = itertools.product(*(sorted(sizes.get(kind, {1})) for kind in _FACTORS))
    fitting = [choice for choice in choices if _product_of(choice) == size]
    if len(fitting) != 1:
        return pl.DataFrame([{"ranks": size, "reason": SEVERAL_WAYS if fitting else OTHER_SIZES}], schema=LAYOUT)
    row |= dict(zip(_FACTORS, fitting[0], strict=True))
    return pl.DataFrame([{**row, "reason": BY_GROUPS}], schema=LAYOUT).select(cast_columns(LAYOUT))


def _product_of(numbers: Sequence[int]) -> int:
    product = 1
    for number in numbers:
        product *= number
    return product
