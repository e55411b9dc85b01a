"""What a trace among many costs, counted and not timed: files that are opened, queries, and looks at the other traces."""

from __future__ import annotations

import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.advice import advise
from steplens.analysis import communication_operations as operations
from steplens.analysis.rank_communication import rank_operations
from steplens.cli.open_ import describe
from steplens.trace.run import Run, Source
from steplens.trace.trace import Trace

from .writers.builder import BASE_NS, MAIN, PID, build, op

_OPENED: list[list[str]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _OPENED and event == "open" and isinstance(arguments[0], (str, bytes)):
        _OPENED[-1].append(str(arguments[0]))


sys.addaudithook(_hook)


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """The files that Python opens meanwhile."""
    _OPENED.append([])
    try:
        yield _OPENED[-1]
    finally:
        _OPENED.pop()


def directories(folder: Path, count: int) -> Path:
    """Run directories of small windows in a folder."""
    for number in range(count):
        window = folder / f"host_{number}_2026010100000000{number}_ascend_pt"
        (window / "KINETO").mkdir(parents=True)
        common = {"ph": "X", "pid": 5, "tid": 5}
        steps = [{**common, "cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": 1000.0 * n, "dur": 900} for n in (1, 2)]
        calls = [{**common, "cat": "cpu_op", "name": "aten::mm", "ts": 1000.0 * n + 9, "dur": 50.0} for n in (1, 2)]
        (window / "KINETO" / "trace.json").write_text(json.dumps({"traceEvents": [*steps, *calls]}))
        (window / "profiler_info.json").write_text(json.dumps({"config": {}, "rank_id": 0}))
    return folder


def looked_at(folder: Path) -> None:
    """What ``steplens open`` asks."""
    run = steplens.open(folder)
    assert all(describe(source, trace).steps == [1, 2] for source, trace in zip(run.sources, run.traces, strict=True))
    run.health()


def test_opening_opens_the_same_files_for_each_trace(tmp_path: Path) -> None:
    first, again = [], []
    for count in (2, 4, 6):
        folder = directories(tmp_path / str(count), count)
        for found in (first, again):
            with opened_files() as files:
                looked_at(folder)
            inside = Counter(Path(name).name for name in files if name.startswith(str(folder)) and not Path(name).is_dir())
            found.append(Counter({name: times for name, times in inside.items() if not name.startswith(".")}))
    assert first[0]["trace.json"] > 0
    # what is kept is read; of the source only what it is known by
    assert again[0]["trace.json"] == 2 < first[0]["trace.json"]
    for found in (first, again):
        assert found[2] - found[1] == found[1] - found[0]


def test_opening_again_asks_each_trace_a_few_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for count in (2, 4, 6):
        folder = directories(tmp_path / str(count), count)
        looked_at(folder)
        with monkeypatch.context() as patch:
            asked = counted(patch, pl.LazyFrame, "collect")
            looked_at(folder)
        counts.append(len(asked))
    assert counts[2] - counts[1] == counts[1] - counts[0]
    assert counts[1] - counts[0] <= 2 * 8


def counted(patch: pytest.MonkeyPatch, owner: Any, name: str) -> list[None]:
    """Count the calls of a function: one entry each."""
    calls: list[None] = []
    function: Callable[..., Any] = getattr(owner, name)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        calls.append(None)
        return function(*arguments, **options)

    patch.setattr(owner, name, wrapped)
    return calls


def ranks(count: int, *, collective: bool = False) -> list[Trace]:
    """Ranks of one job, each with six steps; the first is longer than the others."""
    traces = []
    for rank in range(count):
        begins = [0, 30_000, 40_000, 50_000, 60_000, 70_000, 80_000]
        spans = list(itertools.pairwise(begins))
        steps = [
            {"id": number, "start_ns": BASE_NS + begin, "end_ns": BASE_NS + end, "pid": PID, "tid": MAIN}
            for number, (begin, end) in enumerate(spans)
        ]
        calls = [op("aten::mm", begin / 1000, begin / 1000 + 5, step=number) for number, (begin, _) in enumerate(spans)]
        rows: dict[str, Any] = {"ops": calls, "steps": steps}
        if collective:
            times = {"start_ns": BASE_NS + 31_000 + rank, "end_ns": BASE_NS + 35_000}
            names = {"name": "gloo:all_reduce", "kind": "collective", "operation": "allreduce", "group": "0"}
            rows["communication"] = [{**names, **times, "step": 1, "bytes": 4}]
        traces.append(build(meta={"rank": rank, "world_size": count}, **rows))
    return traces


def test_choosing_steps_looks_at_each_trace_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for count in (10, 20, 30):
        traces = ranks(count)
        run = Run(Path("job"), [(_source(number), trace) for number, trace in enumerate(traces)], [])
        with monkeypatch.context() as patch:
            looks = counted(patch, Trace, "once")
            assert run.step_summary().steps == 5 * count
            assert run.verdict().summary is run.step_summary()
        counts.append(len(looks))
    assert counts[2] - counts[1] == counts[1] - counts[0]


def test_the_communication_of_every_rank_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = ranks(6, collective=True)
    worked_out = counted(monkeypatch, operations, "_of_trace")
    found = [rank_operations(traces, rank, step) for rank in range(6) for step in (None, 1)]
    assert all(rows["calls"].to_list() == [1] for rows in found)
    assert len(worked_out) == len(traces)


def test_rules_are_not_asked_about_a_trace_again(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = ranks(3)
    sources = [_source(number) for number in range(3)]
    advise(Run(Path("job"), list(zip(sources, traces, strict=True)), []))
    before = traces[1].companions
    asked = counted(monkeypatch, pl.LazyFrame, "collect")
    alone = advise(Run(Path("job"), [(sources[1], traces[1])], []))
    again = len(asked)
    traces[1].companions = before
    fresh = ranks(3)
    fresh[1].companions = tuple(fresh)
    asked.clear()
    same = advise(Run(Path("job"), [(sources[1], fresh[1])], []))
    assert [finding.id for finding in alone.findings] == [finding.id for finding in same.findings]
    assert again < len(asked) / 2


def _source(number: int) -> Source:
    return Source(Path(f"rank{number}"))
