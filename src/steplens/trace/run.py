"""``Run``: one or more traces opened together, with the questions a user asks of them.

This is the facade for notebooks and commands: it alone reaches to the readers on its left and the analyses on its right.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from steplens.errors import InputError
from steplens.trace import checks
from steplens.trace.health import ERROR, RANK_COMPARISON, WARNING, finding, frame_of, unsafe
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Trace


@dataclass(frozen=True)
class Source:
    """Where one trace comes from.

    Attributes:
        path: run directory or file.
        format: what it is, such as "Kineto trace".
        reason: why it is read this way, in words that follow "because".
        ignored: what else lies there and is not read.
    """

    path: Path
    format: str = ""
    reason: str = ""
    ignored: tuple[str, ...] = ()


class Run:
    """What ``steplens.open`` returns: the traces of one path.

    Attributes:
        path: what was opened.
        sources: where each trace comes from, in the order of ``traces``.
        traces: one per run directory or file, in order of name.
        unreadable: what lies in a folder and could not be read, path and reason.
    """

    def __init__(self, path: Path, traces: list[tuple[Source, Trace]], unreadable: list[InputError]) -> None:
        self.path = path
        self.sources = [source for source, _ in traces]
        self.traces = [trace for _, trace in traces]
        self.unreadable = unreadable

    def trace(self, rank: int | None = None) -> Trace:
        """The tables of one rank.

        Args:
            rank: which; None is the first trace.

        Raises:
            InputError: no trace is of that rank.
        """
        if rank is None:
            return self.traces[0]
        for trace in self.traces:
            if trace.rank == rank:
                return trace
        raise InputError(self.path, f"holds no rank {rank}; its ranks are {sorted({trace.rank for trace in self.traces})}")

    def steps(self, *, whole_trace_without_steps: bool = False) -> pl.DataFrame:
        """Times of every step; see ``analysis.steps.step_times``. Several traces add the columns ``rank`` and ``window``.

        Args:
            whole_trace_without_steps: a trace without steps gives one row for all of it, ``step`` null.
        """
        from steplens.analysis.steps import step_times

        return self._each(lambda trace: step_times(trace, whole_trace_without_steps=whole_trace_without_steps))

    def idle(self) -> pl.DataFrame:
        """Idle time of an accelerator per step and cause; see ``analysis.idle.idle_causes``."""
        from steplens.analysis.idle import idle_causes

        return self._each(idle_causes)

    def operators(self, by: str = "name") -> pl.DataFrame:
        """Operator calls in groups; see ``analysis.operators.operators``. Several traces are added up."""
        from steplens.analysis.operators import operators

        if len(self.traces) == 1:
            return operators(self.traces[0], by)  # type: ignore[arg-type]
        frame = pl.concat([operators(trace, by) for trace in self.traces])  # type: ignore[arg-type]
        sums = ["calls", "self_ns", "total_ns", "device_self_ns", "device_total_ns"]
        keys = [column for column in frame.columns if column not in sums]
        return frame.group_by(keys).agg(pl.col(*sums).sum()).sort(["self_ns", *keys], descending=[True, *([False] * len(keys))])

    def memory(self) -> pl.DataFrame:
        """Peak memory per device; see ``analysis.memory.memory_summary``."""
        from steplens.analysis.memory import memory_summary

        return self._each(memory_summary)

    def health(self) -> pl.DataFrame:
        """Findings about the data itself, with the path they concern; no rows when nothing is wrong."""
        found = [(source.path, trace.health) for source, trace in zip(self.sources, self.traces, strict=True)]
        for error in self.unreadable:
            lost = finding("unreadable", ERROR, 1, error.problem, RANK_COMPARISON)
            found.append((error.path, frame_of([lost])))
        together = [(source.path, trace) for source, trace in zip(self.sources, self.traces, strict=True)]
        found.append((self.path, frame_of(checks.across(together))))
        schema = {**SCHEMA["health"], "source": pl.String()}
        frames = [frame.with_columns(source=pl.lit(str(path))) for path, frame in found if frame is not None and frame.height]
        return pl.concat([pl.DataFrame(schema=schema), *frames])

    def unsafe(self, conclusion: str, *, least: str = WARNING) -> pl.DataFrame:
        """The findings of ``health()`` that make a conclusion unsafe; no rows when it is safe.

        Args:
            conclusion: one of ``trace.health.CONCLUSIONS``, such as "operator times".
            least: the lowest severity that matters.

        Raises:
            ValueError: the word is not in the vocabulary.
        """
        return unsafe(self.health(), conclusion, least=least)

    def sql(self, query: str) -> pl.DataFrame:
        """Answer a SQL query over the tables (``ops``, ``kernels``, ``steps`` ...); several traces add a ``rank`` column.

        Raises:
            InputError: the query is wrong; the message says where.
        """
        context = pl.SQLContext()
        for name in SCHEMA:
            frames = [(trace.rank, frame) for trace in self.traces if (frame := trace.lazy(name)) is not None]
            if len(self.traces) == 1 and frames:
                context.register(name, frames[0][1])
            elif frames:
                context.register(name, pl.concat([frame.with_columns(rank=pl.lit(rank)) for rank, frame in frames]))
        try:
            return context.execute(query, eager=True)
        except pl.exceptions.PolarsError as error:
            raise InputError(self.path, f"cannot answer the query: {error}") from error

    def _each(self, analysis: Callable[[Trace], pl.DataFrame]) -> pl.DataFrame:
        if len(self.traces) == 1:
            return analysis(self.traces[0])
        frames = [
            analysis(trace).with_columns(rank=pl.lit(trace.rank, dtype=pl.Int64), window=pl.lit(source.path.name))
            for source, trace in zip(self.sources, self.traces, strict=True)
        ]
        return pl.concat(frames)


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open a run directory, a folder of them, or a trace file that steplens did not write.

    Args:
        path: what to open. A folder in which some windows cannot be read opens with the rest; ``health()`` names them.

    Raises:
        InputError: nothing at ``path`` can be read; the message says why and what to do.
    """
    from steplens.readers.detect import find_traces, load

    top = Path(path)
    traces: list[tuple[Source, Trace]] = []
    unreadable: list[InputError] = []
    for found in find_traces(top):
        try:
            traces.append((Source(found.path, found.format.name, found.reason, found.ignored), load(found)))
        except InputError as error:
            unreadable.append(error)
    if not traces:
        if len(unreadable) == 1:
            raise unreadable[0]
        raise InputError(top, f"holds {len(unreadable)} runs and none can be read; the first: {unreadable[0].problem}")
    return Run(top, traces, unreadable)
