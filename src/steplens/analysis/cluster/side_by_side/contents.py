"""What there is to say of one rank beside the others: what it recorded, of which devices, and the figures of its steps."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from steplens.analysis.cluster.clocks.job_clocks import host_of
from steplens.analysis.data_loading.data_pipeline import operations
from steplens.analysis.data_loading.data_wait import WaitingSteps, loads_in_loop, waiting_steps
from steplens.analysis.data_loading.loader_stages import LOOP
from steplens.analysis.data_loading.loaders import verdicts
from steplens.analysis.data_loading.pipeline_verdict import held_up_by
from steplens.analysis.memory.memory import memory_summary
from steplens.analysis.steps.summary import StepSummary, summarize_steps
from steplens.analysis.tools.once import once_per_trace
from steplens.trace.building.devices import device_kind, device_names
from steplens.trace.building.extents import table_extents
from steplens.trace.trace import Trace


@dataclass(frozen=True)
class Bottleneck:
    """What holds up a data pipeline.

    Attributes:
        id: of an operation of MindSpore, or the number of a loader of PyTorch.
        name: of the operation, or of the loader and its stage.
        usage: of the operation's queue, 0 to 1; None where it is not known, and of a loader, whose stages were measured.
    """

    id: int | None
    name: str
    usage: float | None


@dataclass(frozen=True)
class RankContents:
    """One trace beside the others of its run.

    Attributes:
        host: the computer that it was recorded on; empty where the source does not say.
        device_kind: "CPU", "CUDA", "ROCM" or "NPU".
        devices: what ran its tasks, with the product's name where that is known.
        rows: recorded table -> its rows.
        streams: streams of its devices on which tasks ran.
        peak_bytes: most memory allocated on one device; None where memory was not recorded.
        summary: figures of a step over its chosen steps.
        loads_itself: whether its training loop loads the data itself, and so waits for nobody.
        waiting: which of its usual steps wait for data; None where all do or none does.
        bottlenecks: what holds up its data pipeline.
    """

    host: str
    device_kind: str
    devices: tuple[str, ...]
    rows: dict[str, int]
    streams: int
    peak_bytes: int | None
    summary: StepSummary
    loads_itself: bool
    waiting: WaitingSteps | None
    bottlenecks: tuple[Bottleneck, ...]


@once_per_trace
def rank_contents(trace: Trace) -> RankContents:
    """What there is to say of a trace beside the others; of a job of many ranks it is kept, and no table of them is read."""
    summary = summarize_steps([trace])
    peak = memory_summary(trace)["peak_allocated"].max()
    streams = trace.required("kernels").select(pl.struct("device", "stream").n_unique())
    return RankContents(
        host=host_of(trace),
        device_kind=device_kind(trace),
        devices=tuple(device_names(trace)),
        rows={name: extent.rows for name, extent in table_extents(trace).items()},
        streams=streams.collect().item(),
        peak_bytes=peak if isinstance(peak, int) else None,
        summary=summary,
        loads_itself=bool(summary.host.get("data_wait_ns")) and loads_in_loop(trace),
        waiting=waiting_steps(trace),
        bottlenecks=_pipeline_bottlenecks(trace),
    )


def _pipeline_bottlenecks(trace: Trace) -> tuple[Bottleneck, ...]:
    if trace.lazy("pipeline_loaders") is not None:
        # of a loader the stages were measured, and its one queue tells less
        slow_loaders = [verdict for verdict in verdicts(trace) if verdict.stage != LOOP]
        return tuple(
            Bottleneck(verdict.loader, f"{verdict.stage} of DataLoader({verdict.dataset}, id={verdict.loader})", None)
            for verdict in slow_loaders
        )
    slow = operations(trace).filter(pl.col("id").is_in(held_up_by(trace)))
    return tuple(Bottleneck(*row) for row in slow.select("id", "operation", "usage").iter_rows())
