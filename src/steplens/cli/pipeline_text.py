"""The data pipeline's part of ``steplens summary``: its queues, and which operation holds up the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console

from steplens.cli.text import plain

if TYPE_CHECKING:
    from steplens.trace.run import Run


def pipeline_rows(run: Run) -> list[dict[str, Any]]:
    """One row per operation with a queue: rank, name, workers, how full its output queue was, whether it holds up others."""
    from steplens.analysis.data_pipeline import bottlenecks, operations

    rows = []
    for trace in run.traces:
        table = operations(trace)
        slow = set(bottlenecks(table))
        for row in table.iter_rows(named=True):
            if row["usage"] is not None or row["id"] in slow:
                name = f"{row['type'].removesuffix('Op')}(id={row['id']})"
                kept = {key: row[key] for key in ("workers", "mean_size", "queue_capacity", "usage", "empty_share")}
                rows.append({"rank": trace.rank, "operation": name, **kept, "holds_up": row["id"] in slow})
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
        workers = f", {row['workers']} worker{'s' if row['workers'] != 1 else ''}" if row["workers"] is not None else ""
        full = f"its queue {100 * row['usage']:.1f} % full" if row["usage"] is not None else "no queue"
        verdict = "; it holds up the others" if row["holds_up"] else ""
        out.print(plain(f"  {part}{row['operation']}: {full}{workers}{verdict}"), soft_wrap=True)
