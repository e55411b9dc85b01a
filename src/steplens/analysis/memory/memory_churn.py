"""How much memory is allocated and given back all the time: per step, per operator, and how long the blocks live."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from steplens.analysis.memory.memory import operator_memory, user_of
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.analysis.tools.source_lines import source_line
from steplens.trace.building.steps import step_of
from steplens.trace.trace import Trace

_FIGURES = table_schema(
    "allocations, allocated_bytes, within_call, within_call_bytes, within_step, within_step_bytes, median_life_ns: Float64"
)
_DEVICE = table_schema("device_type: String, device: Int32")
KEYS: dict[str, dict[str, Any]] = {
    "step": {"step": pl.Int64()},
    "operator": {"name": pl.String()},
    "module": {"module": pl.String()},
    "line": {"line": pl.String()},
}
_FREED = table_schema("releases, released_bytes")


def schema_of(by: str) -> dict[str, Any]:
    """Columns of ``memory_churn``."""
    return {**_DEVICE, **KEYS[by], **_FIGURES, **(_FREED if by == "step" else {})}


def memory_churn(trace: Trace, by: str = "step") -> pl.DataFrame:
    """What was allocated, and how much of it was given back at once; per step in order, else the most bytes first.

    ``allocations`` and ``allocated_bytes``: blocks; of them ``within_call``: released before the call that owns them ended
    (scratch memory), ``within_step``: released before the step in which they were allocated ended, those within a call
    included. ``median_life_ns``: from allocation to release, of the blocks that were released in the window. By step also
    ``releases`` and ``released_bytes``: what was given back in the step, whenever it was allocated.

    The call that owns a block is that of ``analysis.memory.memory.user_of``. Source: ``operator_memory``; by step only what lies
    in steps.

    Args:
        trace: one rank, recorded with memory.
        by: "step", "operator", "module" or "line" (of the user's code).

    Raises:
        ValueError: ``by`` is none of them.
    """
    if by not in KEYS:
        raise ValueError(f"memory_churn(by={by!r}): by must be one of {', '.join(KEYS)}")
    columns = schema_of(by)
    blocks = _keyed_blocks(trace, by)
    key, device = next(iter(KEYS[by])), list(_DEVICE)
    size, in_call, in_step = pl.col("bytes"), pl.col("in_call"), pl.col("in_step")
    churn = blocks.group_by(*device, key).agg(
        allocations=pl.len(),
        allocated_bytes=size.sum(),
        within_call=in_call.sum(),
        within_call_bytes=size.filter(in_call).sum(),
        within_step=in_step.sum(),
        within_step_bytes=size.filter(in_step).sum(),
        median_life_ns=(pl.col("release_ns") - pl.col("allocation_ns")).median(),
    )
    if by == "step":
        freed = blocks.select(*device, "bytes", step="release_step").drop_nulls("step").group_by(*device, "step")
        sums = freed.agg(releases=pl.len(), released_bytes=pl.col("bytes").sum())
        churn = churn.drop_nulls("step").join(sums, on=[*device, "step"], how="full", coalesce=True, nulls_equal=True)
        numbers = [name for name in columns if name not in (*device, "step", "median_life_ns")]
        churn = churn.with_columns(pl.col(numbers).fill_null(0)).sort(*device, "step")
    else:
        churn = churn.sort(*device, "allocated_bytes", key, descending=[False, False, True, False])
    return churn.select(cast_columns(columns))


def _keyed_blocks(trace: Trace, by: str) -> pl.DataFrame:
    """Every block with its end, step, whether it lived within its call and step, and the key."""
    blocks = trace.once_if_small(_owned_blocks)
    if by in ("module", "line"):
        ops = trace.required("ops").select("module", "stack").collect()
        key = (
            ops["module"].gather(blocks["owner"]).cast(pl.String)
            if by == "module"
            else source_line(ops["stack"].gather(blocks["owner"]))
        )
        return blocks.with_columns(key)
    return blocks


def _owned_blocks(trace: Trace) -> pl.DataFrame:
    """The blocks with what does not depend on the key; ``owner``: the row of ``ops`` of the call that owns it."""
    blocks = operator_memory(trace).with_columns(pl.col("device_type").cast(pl.String))
    blocks = blocks.with_columns(release_ns=pl.coalesce("release_ns", "active_release_ns"))
    ops = trace.required("ops").select("name", "end_ns").collect()
    owner = user_of(trace, pl.select(pl.when(blocks["op"].is_between(0, ops.height - 1)).then(blocks["op"])).to_series())
    steps = trace.steps
    times = [blocks[column].fill_null(-1).to_numpy() for column in ("allocation_ns", "release_ns")]
    if steps is None:
        begun = ended = pl.Series("step", [None], dtype=pl.Int64).new_from_index(0, blocks.height)
    else:
        begun, ended = (step_of(np.asarray(time), steps) for time in times)
    return blocks.with_columns(
        step=begun,
        release_step=ended,
        name=ops["name"].gather(owner).cast(pl.String),
        call_end_ns=ops["end_ns"].gather(owner),
        owner=owner,
    ).with_columns(
        in_call=(pl.col("release_ns") <= pl.col("call_end_ns")).fill_null(False),
        in_step=(pl.col("step") == pl.col("release_step")).fill_null(False),
    )
