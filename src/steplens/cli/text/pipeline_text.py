"""The data pipeline's part of ``steplens summary``: its queues, its stages, and which of them holds up the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console

from steplens.analysis.data_loading.loader_stages import LEAST_BATCHES, LOOP
from steplens.cli.text.text import duration, plain

if TYPE_CHECKING:
    from steplens.run import Run
    from steplens.trace.trace import Trace

#: a wait for the first batch of an epoch that is worth a word, ns
_LONG_START_NS = 100_000_000


def pipeline_rows(run: Run) -> list[dict[str, Any]]:
    """What there is to say of each rank's data pipeline.

    Of MindSpore's one row per operation with a queue: rank, operation, workers, how full its output queue was, whether it holds
    up others. Of PyTorch one row per DataLoader: rank, loader, what ``analysis.data_loading.loaders`` says of it, and its stages.
    """
    rows: list[dict[str, Any]] = []
    for trace in run.traces:
        rows += _loader_rows(trace) if trace.lazy("pipeline_loaders") is not None else _operation_rows(trace)
    return rows


def _operation_rows(trace: Trace) -> list[dict[str, Any]]:
    from steplens.analysis.data_loading.data_pipeline import operations
    from steplens.analysis.data_loading.pipeline_verdict import held_up_by

    rows = []
    table = operations(trace)
    slow = set(held_up_by(trace))
    for row in table.iter_rows(named=True):
        if row["usage"] is not None or row["id"] in slow:
            operation_columns = ("operation", "workers", "mean_size", "queue_capacity", "usage", "empty_share")
            rows.append({"rank": trace.rank, **{key: row[key] for key in operation_columns}, "holds_up": row["id"] in slow})
    return rows


def _loader_rows(trace: Trace) -> list[dict[str, Any]]:
    import dataclasses

    from steplens.analysis.data_loading.data_wait import loads_in_loop
    from steplens.analysis.data_loading.loaders import first_batches, stages, verdicts
    from steplens.analysis.steps.summary import summarize_steps

    summary = summarize_steps([trace])
    loading_ns = summary.host.get("data_wait_ns") if loads_in_loop(trace) else None
    all_stages, first = stages(trace), first_batches(trace)
    rows = []
    for verdict in verdicts(trace):
        stages_of_loader = all_stages.filter(all_stages["loader"] == verdict.loader).drop("loader").to_dicts()
        starts = first.filter(first["loader"] == verdict.loader)["delay_ns"]
        derived = {"first_batch_ns": starts.mean() if len(starts) else None, "epochs": len(starts), "stages": stages_of_loader}
        # the share of the verdict; of several loaders nothing tells whose it is
        is_only = trace.required("pipeline_loaders").collect().height == 1
        is_known = is_only and loading_ns is not None and summary.host_mean_ns
        derived["step_share"] = (loading_ns or 0.0) / (summary.host_mean_ns or 1.0) if is_known else None
        rows.append({"rank": trace.rank, **dataclasses.asdict(verdict), **derived})
    return rows


def show_pipeline(out: Console, rows: list[dict[str, Any]]) -> None:
    """Print it, from the last operation before the training loop to the source of the data."""
    if not rows:
        return
    several = len({row["rank"] for row in rows}) > 1
    out.print()
    out.print(plain("Data pipeline", "bold"))
    for row in rows:
        part = f"rank {row['rank']} " if several else ""
        for line in _loader_lines(row) if "loader" in row else [_operation_line(row)]:
            out.print(plain(f"  {part}{line}"), soft_wrap=True)


def _workers_text(count: int | None) -> str:
    return f", {count} worker{'s' if count != 1 else ''}" if count is not None else ""


def _operation_line(row: dict[str, Any]) -> str:
    full = f"its queue {100 * row['usage']:.1f} % full" if row["usage"] is not None else "no queue"
    verdict = "; it holds up the others" if row["holds_up"] else ""
    return f"{row['operation']}: {full}{_workers_text(row['workers'])}{verdict}"


def _loader_lines(row: dict[str, Any]) -> list[str]:
    """A line about the loader, one per stage, and one about the start of its epochs where that takes long."""
    if row["batches"] < LEAST_BATCHES:
        workers = _workers_text(row["workers"])[2:] if row["workers"] else "no workers"
        how = f"{workers}; too few batches to tell what the loop waits for"
    elif row["workers"]:
        full = f", queue {100 * row['usage']:.0f} % full" if row["usage"] is not None else ""
        busy = f", busy {100 * row['busy_share']:.0f} %" if row["busy_share"] is not None else ""
        used = f", {100 * row['cpu_share']:.0f} % of a processor each" if row["cpu_share"] is not None else ""
        how = f"{_workers_text(row['workers'])[2:]}{busy}{used}{full}; the loop waits {100 * row['wait_share']:.1f} % of its time"
    else:
        share, period = (row["step_share"], "a step") if row["step_share"] is not None else (row["next_share"], "its time")
        how = f"no workers; the loop spends {100 * share:.1f} % of {period} on loading"
    lines = [f"DataLoader({row['dataset']}, id={row['loader']}): {how}"]
    for stage in row["stages"]:
        share_text = f"{100 * stage['share']:.0f} % of all stages"
        times = f"{duration(stage['mean_ns'])} a batch (P90 {duration(stage['p90_ns'])}), {share_text}"
        verdict = "; it holds up the loop" if stage["stage"] == row["stage"] != LOOP else ""
        lines.append(f"  {stage['stage']}: {times}{verdict}")
    if row["first_batch_ns"] is not None and row["first_batch_ns"] >= _LONG_START_NS:
        several = f", mean of {row['epochs']} epochs" if row["epochs"] != 1 else ""
        lines.append(f"  first batch after {duration(row['first_batch_ns'])}{several}")
    return lines
