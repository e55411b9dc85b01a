"""What a trace among many costs, counted and not timed: files that are opened, queries, and looks at the other traces."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.advice import advise
from steplens.analysis.cluster import communication_operations as operations
from steplens.analysis.cluster.rank_communication import rank_operations
from steplens.analysis.steps.phases import host_phase_names
from steplens.cli.open_ import describe_trace
from steplens.common.worker_processes import SharedTasks
from steplens.report.write import Options, write_report
from steplens.run import Run, Source
from steplens.trace.trace import Trace

from .report.conftest import PAGE, Held
from .warm_python import run_warm
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
    assert all(describe_trace(source, trace)["steps"] == [1, 2] for source, trace in zip(run.sources, run.traces, strict=True))
    run.health()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process opens any: on a busy machine one would be started, and what it opens is not seen here."""
    monkeypatch.setenv("STEPLENS_WORKER", "1")


@pytest.mark.usefixtures("alone")
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


@pytest.mark.usefixtures("alone")
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
    worked_out = counted(monkeypatch, operations, "operations_of_trace")
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


def at_work() -> bool:
    """Whether any other process may still answer."""
    return any(thread.name == "steplens-worker" for thread in threading.enumerate())


@pytest.fixture
def with_workers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine on which other processes begin at once, before this one; how many answers each sharing got."""
    answered: list[int] = []
    run = SharedTasks.run

    def shared(tasks: SharedTasks, do: Callable[[int], None], take: Callable[[int, Any], None] | None = None) -> dict[int, Any]:
        def slow(number: int) -> None:
            if number:
                do(number)
                return
            # the others begin meanwhile
            deadline = time.monotonic() + 60
            wanted = min(4, tasks._count // 2) if tasks._room() else 0
            while len(tasks._answers) < wanted and tasks._waiting and at_work() and time.monotonic() < deadline:
                time.sleep(0.01)
            do(number)

        tasks._at_once = tasks._count > 1
        answers = run(tasks, slow, take)
        answered.append(tasks.done - tasks._here)
        return answers

    monkeypatch.setattr(SharedTasks, "run", shared)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return answered


def test_traces_read_by_several_processes_are_the_same(tmp_path: Path, with_workers: list[int]) -> None:
    folder = directories(tmp_path, 8)
    (sorted(folder.iterdir())[6] / "KINETO" / "trace.json").write_text("[1")
    seen: list[tuple[int, int]] = []
    run = steplens.run.open_run(folder, lambda number, total, _: seen.append((number, total)))
    assert with_workers == [with_workers[0]] and with_workers[0] >= 3
    assert [source.path.name[:6] for source in run.sources] == [f"host_{number}" for number in (0, 1, 2, 3, 4, 5, 7)]
    assert [error.path for error in run.unreadable] == [sorted(folder.iterdir())[6] / "KINETO" / "trace.json"]
    assert {total for _, total in seen} == {8} and [number for number, _ in seen] == sorted(number for number, _ in seen)
    alone = [steplens.open(source.path).traces[0] for source in run.sources]
    for one, other in zip(run.traces, alone, strict=True):
        assert set(one) == set(other)
        assert all(one.table(name).equals(other.table(name)) for name in one)  # type: ignore[union-attr, arg-type]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run directories of four windows of a training with an optimizer that updates one parameter after the other."""
    folder = tmp_path_factory.mktemp("trained")
    script = """
import sys, torch, steplens
torch.set_num_threads(1)
layers = [layer for _ in range(8) for layer in (torch.nn.Linear(32, 32), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.Adam(model.parameters(), foreach=False)
schedule = steplens.schedule(wait=0, warmup=0, active=3, repeat=4)
handler = steplens.tensorboard_trace_handler(sys.argv[1], analyse_flag=False)
with steplens.profile(schedule=schedule, on_trace_ready=handler, profile_memory=True, record_shapes=True) as profiler:
    for _ in range(12):
        model(torch.randn(8, 32)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        profiler.step()
"""
    done = run_warm("-c", script, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def told(path: Path) -> dict[str, Any]:
    """What commands tell of a run."""
    run = steplens.open(path)
    advice = advise(run)
    return {
        # with the types of all numbers, which JSON shows
        "findings": [repr(finding) for finding in advice.findings],
        "silenced": [repr(rule) for rule in advice.silenced],
        "steps": run.steps().to_dicts(),
        "operators": run.operators().to_dicts(),
        "phases": [trace.once(host_phase_names).to_dicts() for trace in run.traces],
        "verdict": run.verdict().sentence(),
        "summary": repr(run.step_summary()),
    }


def test_advice_of_several_processes_is_the_same(trained: Path, with_workers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    steplens.open(trained)
    with_workers.clear()
    found = told(trained)
    assert with_workers[-1] >= 2
    assert any("single_tensor_optimizer" in finding for finding in found["findings"])
    monkeypatch.setenv("STEPLENS_WORKER", "1")
    assert told(trained) == found


def test_an_answer_about_another_capture_is_not_taken(tmp_path: Path, with_workers: list[int]) -> None:
    """The folder holds another one by the time the other process opens it."""
    folder = directories(tmp_path / "run", 6)
    run, same = steplens.open(folder), steplens.open(folder)
    for trace in folder.glob("*/KINETO/trace.json"):
        trace.write_text(trace.read_text().replace('"dur": 50.0', '"dur": 60.0'))
    with_workers.clear()
    advise(run)
    assert with_workers == [0]
    assert run.operators().equals(same.operators()) and set(run.operators()["total_ns"]) != set(
        steplens.open(folder).operators()["total_ns"]
    )


def test_a_report_of_several_processes_is_the_same(
    trained: Path, tmp_path: Path, with_workers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    static = tmp_path / "static"
    static.mkdir()
    (static / "index.html").write_text(PAGE)
    for name in ("a.js", "a.css", "i.svg"):
        (static / name).write_text("")

    few = tmp_path / "few"
    for window in sorted(trained.glob("*_ascend_pt"))[:2]:
        shutil.copytree(window, few / window.name)

    def held(name: str, path: Path = few, limit_bytes: int = 32 << 20) -> Held:
        write_report([path], tmp_path / name, Options(rows=20, limit_bytes=limit_bytes), lambda _: None, static)
        return Held(tmp_path / name)

    steplens.open(few)
    with_workers.clear()
    shared = held("shared.html")
    assert with_workers[-1] > 3
    small = held("small.html", min(few.glob("*_ascend_pt")), 100_000)
    monkeypatch.setenv("STEPLENS_WORKER", "1")
    alone = held("alone.html")
    assert list(shared.parts) == list(alone.parts)
    assert any(name.startswith("timeline/") for name in shared.parts)
    for name in shared.parts:
        # the levels of a timeline are no JSON
        assert name.startswith("level/") or comparable(shared.json(name)) == comparable(alone.json(name)), name
    # what other processes made and does not fit is left out, and said to be
    assert sum(len(zlib.compress(part, 6)) for name, part in small.parts.items() if name != "report") <= 100_000
    assert {"answers/0", "bodies/0"} < set(small.parts) < set(shared.parts)
    # whether one of those that do fit is cut to its first rows is a matter of their sizes
    assert "size" in {one["why"] for one in small.json("report")["left_out"]}
    assert {one["why"] for one in shared.json("report")["left_out"]} == {"rows"}


def comparable(content: Any) -> Any:
    """A part of a report without when it was made, and how long opening took."""
    if isinstance(content, list):
        return [comparable(item) for item in content]
    if isinstance(content, float):
        # polars adds up in the order in which its threads are ready
        return float(f"{content:.6g}")
    if not isinstance(content, dict):
        return content
    if {"names", "name"} <= set(content):
        # in which order a timeline numbers its names is not defined
        rows = {key: values for key, values in content.items() if key not in ("names", "name")}
        return sorted(zip([content["names"][place] for place in content["name"]], *rows.values(), strict=True), key=str)
    return {key: comparable(value) for key, value in content.items() if key not in ("created", "seconds")}


def _source(number: int) -> Source:
    return Source(Path(f"rank{number}"))
