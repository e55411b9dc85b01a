"""A generated job of more ranks than pages list one by one, small and fast, one rank and one host of which are slow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from benchmarks.jobs.faults import parse_faults
from benchmarks.jobs.job import write_job
from benchmarks.jobs.layout import Layout
from benchmarks.jobs.program import Model

import steplens
from steplens.advice.prepare import keep_answers, prepare_answers
from steplens.trace.trace import Trace

from .once import once

RANKS, STAGES, PER_HOST, STEPS = 40, 2, 8, 3
SLOW = 13
#: tables that have a row for each event
OF_EVENTS = frozenset({"ops", "kernels", "communication", "api", "marks", "flows", "kernel_metrics", "python"})


def many_ranks(factory: pytest.TempPathFactory) -> Path:
    """The folder of the job, read and analysed: two processes that open it first at once would undo each other's work."""

    def make(folder: Path) -> None:
        layout = Layout(RANKS // 4, STAGES, 2, PER_HOST)
        faults = parse_faults([f"slow_rank:rank={SLOW},factor=1.5,what=backward"], layout, STEPS, 1)
        write_job(folder / "job", layout, Model(layers=1, operators_per_layer=1), faults, steps=STEPS, seed=1)
        run = steplens.open(folder / "job")
        prepare_answers(run)
        run.advise()
        keep_answers(run)

    return once(factory, "many-ranks", make) / "job"


def count_readings(patch: pytest.MonkeyPatch) -> Counter[str]:
    """How often somebody asks for a table of events from now on, by trace and table, whether or not it was read before."""
    counts: Counter[str] = Counter()
    read = Trace._table_as_read

    def counted(trace: Trace, name: str) -> Any:
        if name in OF_EVENTS and name in trace:
            counts[f"{trace.source.name} {name}"] += 1
        return read(trace, name)

    patch.setattr(Trace, "_table_as_read", counted)
    return counts
