"""What the two memory files share: whose events are written, and how sizes, streams and devices read."""

from __future__ import annotations

import polars as pl

from steplens.formats.ascend_results import DEVICE_TYPE
from steplens.writers.common.output import NothingToWriteError, Output

_CPU = "CPU"


def device_types(output: Output) -> list[str]:
    """Device types whose events the memory files hold: the accelerators', or the CPU's on a run without accelerator."""
    types = (output.trace.required(table).select(pl.col("device_type").cast(pl.String)) for table in ("memory", "allocations"))
    present = pl.concat(types).unique().collect().to_series()
    accelerators = sorted(set(present.drop_nulls()) - {_CPU})
    if accelerators or output.trace.has_accelerator:
        if not accelerators:
            raise NothingToWriteError("no allocator event of an accelerator was recorded")
        return accelerators
    if present.is_empty():
        raise NothingToWriteError("no allocator events were recorded")
    return [_CPU]


def to_megabytes(bytes_: pl.Expr) -> pl.Expr:
    """Bytes as MB of 2**20; exact, because the divisor is a power of two."""
    return bytes_.cast(pl.Float64) / 1_048_576.0


def stream_pointer(frame: pl.DataFrame) -> pl.Expr:
    """The stream's address; the CPU has no streams, which reads 0, and an unknown stream stays empty."""
    on_cpu = pl.col("device_type").cast(pl.String) == _CPU
    if frame["stream"].null_count() == 0:
        return pl.col("stream")
    return pl.when(on_cpu).then(pl.col("stream").fill_null(0)).otherwise(pl.col("stream"))


def device_tag(frame: pl.DataFrame) -> pl.Series:
    """``CPU`` or ``NPU:<device>``; CUDA devices carry the NPU tag too, because clients match that prefix literally."""
    pairs = frame.select(pl.col("device_type").cast(pl.String), pl.col("device").fill_null(0))
    return pairs.select(
        pl.when(pl.col("device_type") == _CPU).then(pl.lit(_CPU)).otherwise(pl.format("NPU:{}", "device")).alias(DEVICE_TYPE)
    ).to_series()
