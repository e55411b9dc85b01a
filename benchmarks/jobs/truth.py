"""What really happened in a job: ``truth.json`` and, as Parquet beside it, its steps and its messages.

``truth_steps.parquet``: a row per rank and step. start_ns and duration_ns of the step on the host, from mark to mark; data_ns,
forward_ns, backward_ns and optimizer_ns of it: in the loader; from the first forward to the beginning of the backward pass that
follows it; in backward passes; in ``Optimizer.step``. work_ns: how long the device computed. Times are true.

``truth_messages.parquet``: a row per message and rank. group, operation, number (of the operation in the group and step), step,
rank, peer (of a send or a receive), bytes (that the rank puts in), arrival_ns, leave_ns; wait_ns: until the last one arrived;
transfer_ns: from then on until the rank leaves.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from benchmarks.jobs.clocks import START_NS, Clock
from benchmarks.jobs.faults import Fault
from benchmarks.jobs.layout import Layout
from benchmarks.jobs.program import DATA, SEND, TENSOR, WORLD, Kernel, Model, Program, Transfer
from benchmarks.jobs.simulation import StageTimes

Ints = npt.NDArray[np.int64]

RECORD, STEPS, MESSAGES = "truth.json", "truth_steps.parquet", "truth_messages.parquet"


class Truth:
    """Collects it, step by step."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.steps: list[pl.DataFrame] = []
        self.messages: list[pl.DataFrame] = []

    def add(self, number: int, times: list[StageTimes]) -> None:
        """Take a step; ``number`` is that of the training."""
        self.steps += [_step_rows(number, stage) for stage in times]
        rows = pl.concat([self._message_rows(number, stage) for stage in times])
        last = pl.col("arrival_ns").max().over("group", "operation_key", "number")
        rows = rows.with_columns(wait_ns=last - pl.col("arrival_ns"), transfer_ns=pl.col("leave_ns") - last)
        self.messages.append(rows.drop("operation_key"))

    def _message_rows(self, number: int, times: StageTimes) -> pl.DataFrame:
        layout, ranks = self.layout, times.ranks
        frames = []
        counts: dict[tuple[str, int, int], int] = {}
        groups = {
            WORLD: np.zeros(len(ranks), dtype=np.int64),
            DATA: np.array([layout.data_group(rank).number for rank in ranks.tolist()]),
            TENSOR: np.array([layout.tensor_group(rank).number for rank in ranks.tolist()]),
        }
        pipeline = np.array([layout.pipeline_group(rank).number for rank in ranks.tolist()])
        for row, call in enumerate(times.program.calls):
            work = call.work
            if not isinstance(work, Transfer):
                continue
            own = (work.operation, work.stream, work.peer)
            counts[own] = counts.get(own, -1) + 1
            stage = times.program.stage
            sender = stage if work.operation == SEND else stage + work.peer
            towards = work.peer if work.operation == SEND else -work.peer
            frames.append(
                pl.DataFrame(
                    {
                        "step": number,
                        "group": pipeline if work.peer else groups[work.stream],
                        "operation": work.operation,
                        # a send and its receive are one message
                        "operation_key": f"{sender}>{sender + towards}" if work.peer else work.operation,
                        "number": counts[own],
                        "rank": ranks,
                        "peer": ranks + work.peer * layout.ranks_per_stage if work.peer else None,
                        "bytes": work.size,
                        "arrival_ns": times.work_begin[row],
                        "leave_ns": times.work_end[row],
                    },
                    schema=_MESSAGES,
                )
            )
        return pl.concat(frames) if frames else pl.DataFrame(schema=_MESSAGES)

    def write(self, out: Path, layout: Layout, model: Model, faults: list[Fault], clocks: list[Clock], **more: Any) -> None:
        """Write all of it to a folder."""
        steps, messages = pl.concat(self.steps), pl.concat(self.messages)
        steps.sort("rank", "step").write_parquet(out / STEPS)
        messages.write_parquet(out / MESSAGES)
        record = {
            **more,
            "layout": {
                "ranks": layout.ranks,
                "data": layout.data,
                "pipeline": layout.pipeline,
                "tensor": layout.tensor,
                "hosts": layout.hosts,
                "ranks_per_host": layout.ranks_per_host,
            },
            "model": asdict(model),
            "faults": [fault.as_record() for fault in faults],
            "clocks": [
                {"host": host, "offset_ns": clock.offset_ns, "drift_ppm": clock.drift * 1e6, "steps": clock.steps}
                for host, clock in enumerate(clocks)
                if clock.offset_ns or clock.drift or clock.steps
            ],
            "start_ns": START_NS,
            "step_ms": [
                round(ns / 1e6, 3)
                for ns in steps.group_by("step").agg(pl.col("duration_ns").median()).sort("step")["duration_ns"]
            ],
        }
        (out / RECORD).write_text(json.dumps(record, indent=2) + "\n")


_MESSAGES = {
    "step": pl.Int64(), "group": pl.Int64(), "operation": pl.String(), "operation_key": pl.String(), "number": pl.Int64(),
    "rank": pl.Int64(), "peer": pl.Int64(), "bytes": pl.Int64(), "arrival_ns": pl.Int64(), "leave_ns": pl.Int64(),
}  # fmt: skip


def _host_time(times: StageTimes, row: int, usual_ns: int) -> Ints:
    """When the host is so far into a call, counted in usual ns from its beginning; as the events have it."""
    pace = times.pace[row].astype(np.float64)
    return np.asarray(times.begin[row] + np.floor(pace * usual_ns).astype(np.int64))


def _call_end(times: StageTimes, row: int, tail_ns: int = 0) -> Ints:
    return np.asarray(_host_time(times, row, times.program.calls[row].whole_ns + tail_ns) + times.blocked[row])


def _step_rows(number: int, times: StageTimes) -> pl.DataFrame:
    program = times.program
    ranges = {span.name: span for span in program.spans}
    whole, optimizer = ranges["ProfilerStep#"], ranges["Optimizer.step#AdamW.step"]
    start = _host_time(times, 0, -whole.lead_ns)
    backward = np.zeros(len(times.ranks), dtype=np.int64)
    forward = np.zeros_like(backward)
    for begin, end in _passes(program):
        backward += end(times) - begin(times)
    for begin, end in _forwards(program):
        forward += end(times) - begin(times)
    work = [row for row, call in enumerate(program.calls) if isinstance(call.work, Kernel) and not call.work.copied_bytes]
    return pl.DataFrame(
        {
            "rank": times.ranks,
            "step": number,
            "start_ns": start,
            "duration_ns": _call_end(times, whole.last, whole.tail_ns) - start,
            "data_ns": _call_end(times, 0) - times.begin[0],
            "forward_ns": forward,
            "backward_ns": backward,
            "optimizer_ns": _call_end(times, optimizer.last, optimizer.tail_ns)
            - _host_time(times, optimizer.first, -optimizer.lead_ns),
            "work_ns": (times.work_end[work] - times.work_begin[work]).sum(axis=0),
        }
    )


def _span_around(program: Program, row: int, *, last: bool) -> tuple[int, int]:
    """Lead and tail of the outermost range of a pass that begins, or ends, at a call."""
    around = [
        span
        for span in program.spans
        if (span.last if last else span.first) == row and span.name.startswith(("autograd::", "DistributedDataParallel"))
    ]
    widest = max(around, key=lambda span: span.lead_ns, default=None)
    return (0, 0) if widest is None else (widest.lead_ns, widest.tail_ns)


def _passes(program: Program) -> Any:
    """Begin and end of each backward pass."""
    for first, last in program.backwards:
        yield _begin_of(program, first), _end_of(program, last)


def _begin_of(program: Program, row: int) -> Any:
    lead, _ = _span_around(program, row, last=False)
    return lambda times: _host_time(times, row, -lead)


def _end_of(program: Program, row: int) -> Any:
    _, tail = _span_around(program, row, last=True)
    return lambda times: _call_end(times, row, tail)


def _forwards(program: Program) -> Any:
    """From the first forward behind a backward pass to the beginning of the next."""
    behind = -1
    for first, last in program.backwards:
        begins = [begin for begin, _ in program.forwards if behind < begin < first]
        if begins:
            yield _begin_of(program, begins[0]), _begin_of(program, first)
        behind = last
