"""MindSpore's records of the host (r2.2) against a reader that walks the rows one by one, and damaged ones."""

from __future__ import annotations

import csv
import io
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.common.errors import InputError
from steplens.readers.mindspore import mindspore_find
from steplens.readers.mindspore.mindspore_folder import open_folder
from steplens.readers.mindspore.mindspore_host import is_host_file, read_host_records
from steplens.readers.mindspore.results import mindspore_flat
from steplens.trace.health import HealthLog
from steplens.trace.trace import Trace

from .mindspore_data import shared

HEADER = "tid,pid,parent_pid,module_name,event,stage,level,start_end,custom_info,memory_usage(kB),time_stamp(us)\n"
START_US = 1_697_000_000_000_000
THREADS = (140_737_353_930_560, 140_737_353_930_561)


def line(event: str, point: int, time_us: Any, module: str = "GraphKernel", stage: str = "Run", info: str = "", memory: Any = 0,
         tid: Any = THREADS[0], level: Any = 1) -> str:  # fmt: skip
    """A row as MindSpore's C++ writes it: only what is told of a range may be quoted."""
    return f"{tid},4711,1,{module},{event},{stage},{level},{point},{info},{memory},{time_us}\n"


def job(folder: Path, *lines: str, rank: int = 0) -> Path:
    """A ``profiler`` folder with these rows below ``host_info``."""
    (folder / "profiler" / "host_info").mkdir(parents=True, exist_ok=True)
    (folder / "profiler" / "host_info" / f"host_info_{rank}.csv").write_text(HEADER + "".join(lines))
    return folder / "profiler"


def trace_of(folder: Path) -> Trace:
    return mindspore_flat.read_trace(folder)


def checks(trace: Trace) -> dict[str, int]:
    return {} if trace.health is None else dict(trace.health.select("check", "count").iter_rows())


def random_rows(seed: int, count: int = 400) -> list[str]:
    """Threads that open and close ranges, lose some begins and ends, and note moments; sizes now and then."""
    rng = random.Random(seed)
    now = START_US
    lines = []
    opened: dict[int, list[tuple[str, str, str]]] = {tid: [] for tid in THREADS}
    for _ in range(count):
        now += rng.choice([0, 0, 1, 3, 50])
        tid = rng.choice(THREADS)
        memory = rng.choice([0, 0, rng.randrange(1, 1 << 30)])
        module, event, stage = (rng.choice(names) for names in (("Dataset", "Graph"), ("A", "B"), ("Run", "Build")))
        info = rng.choice(["", "{{op:Map}}", '"{{op:Map}{workers:1,2}}"', "{{名:=1}}"])
        kind = rng.random()
        if kind < 0.4:
            opened[tid].append((module, event, stage))
            point = 0
        elif kind < 0.75 and opened[tid]:
            module, event, stage = opened[tid].pop()
            point = 1
        elif kind < 0.8:
            point = 1
        else:
            point = 2
        if rng.random() < 0.05:
            continue
        lines.append(line(event, point, now, module, stage, info, memory, tid, rng.choice([0, 1])))
    return lines


def walked(text: str) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], Counter[str], list[tuple[int, float]]]:
    """Ranges, moments, how many begins and ends are alone, and sizes: one row after the other, with a stack per kind of range."""
    ranges, moments, sizes = [], [], []
    alone: Counter[str] = Counter()
    stacks: dict[tuple[str, ...], list[int]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        key = (row["module_name"], row["event"], row["stage"], row["tid"], row["pid"])
        time_ns = int(row["time_stamp(us)"]) * 1000
        name = (row["module_name"], f"{row['event']}::{row['stage']}", int(row["tid"]))
        if row["start_end"] == "0":
            stacks.setdefault(key, []).append(time_ns)
        elif row["start_end"] == "2":
            moments.append((*name, time_ns, time_ns, "marker"))
        elif stacks.get(key):
            ranges.append((*name, stacks[key].pop(), time_ns, "push/pop"))
        else:
            alone["unmatched_ends"] += 1
        if int(row["memory_usage(kB)"]) > 0:
            sizes.append((time_ns, float(row["memory_usage(kB)"])))
    if left := sum(map(len, stacks.values())):
        alone["unfinished_ranges"] = left
    return ranges, moments, alone, sizes


@pytest.mark.parametrize("seed", range(8))
def test_equals_a_walk_over_the_rows(tmp_path: Path, seed: int) -> None:
    folder = job(tmp_path, *random_rows(seed))
    ranges, moments, alone, sizes = walked((folder / "host_info" / "host_info_0.csv").read_text())
    trace = trace_of(folder)
    assert trace.marks is not None and trace.counters is not None
    marks = trace.marks.select("domain", "message", "tid", "start_ns", "end_ns", "kind")
    texts = marks.with_columns(pl.col("domain", "message", "kind").cast(pl.String))
    assert sorted(texts.iter_rows()) == sorted([*ranges, *moments])
    assert marks["start_ns"].is_sorted()
    assert list(trace.counters.select("time_ns", "value").iter_rows()) == sizes
    assert checks(trace) == dict(alone)
    assert set(trace.counters["unit"].cast(pl.String)) == {"KB"} and set(trace.marks["pid"]) == {4711}


def test_the_same_range_inside_itself(tmp_path: Path) -> None:
    trace = trace_of(job(tmp_path, line("A", 0, START_US), line("A", 0, START_US + 1), line("A", 1, START_US + 2),
                         line("A", 1, START_US + 9)))  # fmt: skip
    assert trace.marks is not None
    lengths = (trace.marks["end_ns"] - trace.marks["start_ns"]).to_list()
    assert sorted(lengths) == [1000, 9000] and checks(trace) == {}


def test_ranges_of_two_threads_do_not_mix(tmp_path: Path) -> None:
    one, two = THREADS
    trace = trace_of(job(tmp_path, line("A", 0, START_US, tid=one), line("A", 0, START_US + 10, tid=two),
                         line("A", 1, START_US + 30, tid=one), line("A", 1, START_US + 100, tid=two)))  # fmt: skip
    assert trace.marks is not None
    found = trace.marks.sort("start_ns").select("tid", pl.col("end_ns") - pl.col("start_ns"))
    assert list(found.iter_rows()) == [(one, 30_000), (two, 90_000)]


@pytest.mark.parametrize("row", [
    line("A", 3, START_US), line("A", 0, "soon"), line("A", 0, -5), line("A", 0, 1 << 63), line("A", 0, 10**30),
    line("A", 0, START_US, memory="many"), line("A", 0, START_US, memory=1 << 60), line("A", 0, START_US, tid="0x1f"),
    line("A", 0, START_US, level=""), line("A,B", 0, START_US), line("A", 0, "nan"), "4,5\n",
])  # fmt: skip
def test_a_damaged_row_costs_that_row(tmp_path: Path, row: str) -> None:
    good = [line("Good", 0, START_US), line("Good", 1, START_US + 7)]
    trace = trace_of(job(tmp_path, good[0], row, good[1]))
    assert trace.marks is not None
    assert list(trace.marks.select(pl.col("message").cast(pl.String), pl.col("end_ns") - pl.col("start_ns")).iter_rows()) == [
        ("Good::Run", 7000)
    ]
    assert checks(trace) == {"damaged_rows": 1}


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    trace = trace_of(job(tmp_path, line("A", 0, START_US + 9), line("A", 1, START_US), line("A", 2, START_US)))
    assert trace.marks is not None and trace.marks.height == 1
    assert checks(trace) == {"impossible_times": 1}


def test_only_memory_was_recorded(tmp_path: Path) -> None:
    """``profile_framework="memory"`` leaves the times out."""
    trace = trace_of(job(tmp_path, line("A", 0, 0, memory=10), line("A", 1, 0, memory=12)))
    assert trace.marks is None and trace.counters is None
    assert checks(trace) == {"untimed_samples": 2}


def test_a_huge_name_is_cut(tmp_path: Path) -> None:
    trace = trace_of(job(tmp_path, line("x" * 3_000_000, 2, START_US)))
    assert trace.marks is not None
    assert 10_000 <= len(str(trace.marks["message"][0])) < 20_000


@pytest.mark.parametrize("seed", range(40))
def test_any_damage_is_survived(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    folder = job(tmp_path, *random_rows(seed, 30))
    file = folder / "host_info" / "host_info_0.csv"
    data = bytearray(file.read_bytes())
    for _ in range(rng.randint(1, 12)):
        data[rng.randrange(len(HEADER), len(data))] = rng.choice([*b'",\n\r0-9.=e', rng.randrange(256)])
    file.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.4 else data)
    try:
        trace = trace_of(folder)
    except InputError:
        return
    whole = len(random_rows(seed, 30))
    assert trace.marks is None or trace.marks.height <= whole


def test_other_files_of_that_name_are_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "host_info").mkdir()
    (tmp_path / "host_info" / "host_info_0.csv").write_text("host,address\na,b\n")
    assert not is_host_file(tmp_path / "host_info" / "host_info_0.csv")
    assert not open_folder(tmp_path).ranks and not mindspore_find.find_sources(tmp_path)
    health = HealthLog()
    assert not read_host_records(tmp_path / "host_info" / "host_info_0.csv", health)
    assert [finding.check for finding in health.findings] == ["unknown_layout"]


def test_found_from_every_folder_once(tmp_path: Path) -> None:
    folder = job(tmp_path, line("A", 2, START_US))
    for path in (tmp_path, folder, folder / "host_info"):
        run = steplens.open(path)
        assert len(run.traces) == 1
        assert run.traces[0].marks is not None and run.traces[0].marks.height == 1


def test_a_device_on_its_own_clock_keeps_the_host_apart(tmp_path: Path) -> None:
    """The step trace of run_2 counts from the start of the device; laid beside Unix times the two would be fifty years apart."""
    folder = tmp_path / "profiler"
    shutil.copytree(shared("run_2", "normal_run", "profiler"), folder, copy_function=shutil.copyfile)
    folder.chmod(0o750)
    before = steplens.open(folder).traces[0]
    job(tmp_path, line("A", 2, START_US, memory=5), rank=1)
    after = steplens.open(folder).traces[0]
    assert after.marks is None and after.counters is None
    assert checks(after) == {**checks(before), "host_clock": 2}
    assert before.kernels is not None and after.kernels is not None and after.kernels.equals(before.kernels)
    rows = after.source_table("host_info")
    assert rows is not None and rows["event"].to_list() == ["A"]


def test_a_device_on_unix_time_has_the_host_beside_it(tmp_path: Path) -> None:
    folder = job(tmp_path, line("A", 0, START_US), line("A", 1, START_US + 500))
    (folder / "cpu_op_execute_timestamp_0.txt").write_text(f"Default/Add-op0;HostCpuOps;{(START_US + 100) * 1000},0.1,0 \n")
    trace = trace_of(folder)
    assert trace.marks is not None and trace.ops is not None
    assert trace.marks["start_ns"][0] < trace.ops["start_ns"][0] < trace.marks["end_ns"][0]
    assert "host_clock" not in checks(trace)


def test_device_data_by_iteration_is_completed_by_the_host(tmp_path: Path) -> None:
    """``PROF_*`` says how its clock and Unix time belong together, so both can be laid side by side."""
    source = next(path for path in sorted(shared("profiler").iterdir()) if path.name.startswith("PROF_000001"))
    folder = tmp_path / "profiler"
    shutil.copytree(source, folder / source.name, copy_function=shutil.copyfile)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o750 if path.is_dir() else 0o640)
    (alone,) = mindspore_find.find_sources(folder)
    tasks = alone.read().kernels
    assert tasks is not None
    start_us = int(tasks["start_ns"][0]) // 1000
    job(tmp_path, line("A", 0, start_us, memory=7), line("A", 1, start_us + 50), rank=alone.number)
    (found,) = mindspore_find.find_sources(folder)
    trace = found.read()
    assert trace.marks is not None and trace.counters is not None
    assert trace.marks["end_ns"].to_list() == [(start_us + 50) * 1000]
    assert trace.kernels is not None and trace.kernels.equals(tasks)
    assert any(path.name == f"host_info_{alone.number}.csv" for path in found.sources())
