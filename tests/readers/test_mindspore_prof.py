"""PROF directories of MindSpore 2.0: two recorded ranks against their known times and against interval unions."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.analysis.step_trace.step_trace import averages, step_trace
from steplens.analysis.steps.ascend_step_times import ascend_step_times
from steplens.common.errors import InputError
from steplens.readers.mindspore.results import mindspore_prof
from steplens.trace.trace import Trace

from .mindspore_data import shared

NAMES = {0: "PROF_000001_20230818142704322_COJGGGCANRMICFBC", 1: "PROF_000001_20230818142704567_GQFAMHBKGODKJMLA"}
#: rank -> iteration -> us: iteration, forward and backward, refresh, computing, exposed communication, free
EXPECTED = {
    0: {
        1: (47587.81, 4236.10, 43345.58, 5914.58, 41534.30, 113.63),
        2: (15369.16, 4269.15, 11095.07, 5928.10, 9303.05, 114.64),
        3: (15304.02, 4271.86, 11026.37, 5946.60, 9213.81, 120.80),
    },
    1: {
        1: (57532.96, 4247.60, 53279.83, 5927.58, 51464.47, 115.11),
        2: (16792.73, 4277.57, 12510.13, 5922.86, 10727.54, 118.87),
        3: (15654.64, 4273.85, 11376.12, 5951.24, 9560.20, 122.02),
    },
}


def recorded(rank: int) -> Trace:
    return mindspore_prof.read_trace(shared("profiler", NAMES[rank]))


def events(rank: int, kind: str, iteration: int) -> list[dict[str, Any]]:
    folder = shared("profiler", NAMES[rank], f"device_{rank}", "timeline")
    loaded: list[dict[str, Any]] = json.loads(
        next(folder.glob(f"{kind}_{rank}_*_{iteration}.json")).read_text(), parse_float=Fraction
    )
    return loaded


def union_us(intervals: list[tuple[Fraction, Fraction]]) -> Fraction:
    total, reach = Fraction(0), Fraction(-1)
    for start, end in sorted(intervals):
        total += max(Fraction(0), end - max(start, reach))
        reach = max(reach, end)
    return total


@pytest.mark.parametrize("rank", [0, 1])
def test_steps_have_the_known_parts(rank: int) -> None:
    trace = recorded(rank)
    times = ascend_step_times(trace)
    parts = step_trace(trace)
    for step, expected in EXPECTED[rank].items():
        device = times.row(by_predicate=pl.col("step") == step, named=True)
        points = parts.row(by_predicate=pl.col("step") == step, named=True)
        found = (
            points["total_ns"],
            points["forward_backward_ns"],
            points["tail_ns"],
            device["computing_ns"],
            device["communication_not_overlapped_ns"],
            device["free_ns"],
        )
        assert found == tuple(round(value * 1000) for value in expected)
        assert device["communication_ns"] == device["communication_not_overlapped_ns"]
        assert device["computing_ns"] + device["communication_ns"] + device["free_ns"] < points["total_ns"]


@pytest.mark.parametrize("rank", [0, 1])
def test_lanes_of_the_timeline_are_unions_of_tasks(rank: int) -> None:
    trace = recorded(rank)
    times = ascend_step_times(trace)
    for iteration in (1, 2, 3):
        lanes = [event for event in events(rank, "msprof", iteration) if event.get("ph") == "X"]
        tasks = [event for event in events(rank, "task_time", iteration) if event.get("ph") == "X"]
        computing = [event for event in tasks if event["args"]["Task Type"] in ("AI_CORE", "AI_CPU")]
        union = union_us([(event["ts"], event["ts"] + event["dur"]) for event in computing])
        row = times.row(by_predicate=pl.col("step") == iteration, named=True)
        for name, column in (("Computing", "computing_ns"), ("Communication", "communication_ns"), ("Free", "free_ns")):
            lane = sum((Fraction(event["dur"]) for event in lanes if event["name"] == name), Fraction(0))
            assert float(lane) == pytest.approx(row[column] / 1000, abs=0.01)
        assert float(union) == pytest.approx(row["computing_ns"] / 1000, abs=0.01)
        counts = Counter(event["args"]["Task Type"] for event in tasks)
        assert counts["AI_CORE"] == 137 and counts["AI_CPU"] == 2
        mine = trace.required("kernels").filter(pl.col("step") == iteration).collect()
        cores = dict(mine.group_by(pl.col("core").cast(pl.String)).len().iter_rows())
        assert cores == {**counts, "HCCL": 1}
        assert {key: cores[key] for key in ("NOTIFY_WAIT", "NOTIFY_RECORD", "REDUCE_ASYNC_V2", "MEMCPY_ASYNC")} == {
            "NOTIFY_WAIT": 140,
            "NOTIFY_RECORD": 140,
            "REDUCE_ASYNC_V2": 30,
            "MEMCPY_ASYNC": 29,
        }
        assert cores["EVENT_RECORD"] == cores["EVENT_WAIT"] == cores["EVENT_RESET"] == 4


def test_types_are_the_ends_of_names() -> None:
    kernels = recorded(0).required("kernels").with_columns(pl.col("name", "type", "category").cast(pl.String)).collect()
    named = kernels.filter(pl.col("name").str.contains(r"-op\d+$"))
    assert named.height >= 3 * 137
    expected = [name.rsplit("/", 1)[-1].rsplit("-op", 1)[0] for name in named["name"]]
    assert named["type"].to_list() == expected
    assert set(named.filter(type="MatMul")["category"]) == {"matmul"}


def test_collectives_carry_their_names() -> None:
    for rank in (0, 1):
        operations = recorded(rank).communication
        assert operations is not None
        names = operations.with_columns(pl.col("name", "kind", "operation").cast(pl.String))
        assert names.select("name", "kind", "operation", "step").rows() == [
            ("Default/AllReduce-op534_0", "collective", "allreduce", step) for step in (1, 2, 3)
        ]


def test_the_late_rank_arrives_late_at_every_collective() -> None:
    traces = {rank: recorded(rank) for rank in (0, 1)}
    starts, ends, forward = {}, {}, {}
    for rank, trace in traces.items():
        assert trace.step_collectives is not None and trace.step_points is not None
        starts[rank] = trace.step_collectives["start_ns"].to_list()[:3]
        ends[rank] = trace.step_collectives["end_ns"].to_list()[:3]
        forward[rank] = trace.step_points["forward_ns"].to_list()[0]
    # starts relative to Unix time: both clocks are tied to it by start_info, whose resolution is 1 us
    arrival = [(late - early) / 1000 for late, early in zip(starts[0], starts[1], strict=True)]
    clocks = [trace.meta_values()["monotonic_offset_ns"] for trace in traces.values()]
    assert abs(clocks[0] - clocks[1]) < 2000
    shift = (clocks[0] - clocks[1]) / 1000
    assert [round(value - shift, 2) for value in arrival] == [9930.40, 1364.57, 316.22]
    assert round((forward[0] - forward[1]) / 1000 - shift, 2) == 9942.17
    assert round(abs((ends[0][0] - ends[1][0]) / 1000 - shift), 2) == 1.34


def test_folder_of_several_ranks() -> None:
    found = mindspore_prof.find_prof_directories(shared("profiler"))
    assert [path.name for path in found] == list(NAMES.values())
    metas = [mindspore_prof.read_trace(path).meta_values() for path in found]
    assert [meta["rank"] for meta in metas] == [0, 1]
    assert [meta["model_ids"] for meta in metas] == [[2], [0]]
    trace = recorded(0)
    assert trace.health is not None and "steps_without_tasks" in set(trace.health["check"])
    assert (averages(trace).steps, averages(trace).excluded) == (tuple(range(2, 11)), (1,))


def test_unix_time_of_the_device() -> None:
    trace = recorded(0)
    assert trace.step_points is not None
    # 56635864652.490005 us on the monotonic clock, recording began at 56579931060630 ns = 1692340024324979 us
    expected = 56635864652490 + 1692340024324979000 - 56579931060630
    assert trace.step_points["start_ns"][0] == expected
    assert trace.steps is not None and trace.steps["start_ns"][0] == expected


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    source = shared("profiler", NAMES[0])
    return Path(shutil.copytree(source, tmp_path / source.name))


def test_without_start_info_times_stay_monotonic(copy: Path) -> None:
    (copy / "device_0" / "start_info.0").chmod(0o644)
    (copy / "device_0").chmod(0o755)
    (copy / "device_0" / "start_info.0").unlink()
    trace = mindspore_prof.read_trace(copy)
    assert trace.step_points is not None and trace.step_points["start_ns"][0] == 56635864652490
    assert trace.health is not None and "unknown_clock" in set(trace.health["check"])


@pytest.mark.parametrize("begin", ["9795000000000000", "97950000000000000000", "-5", ""])
def test_a_start_that_no_clock_shows_counts_as_none(copy: Path, begin: str) -> None:
    (copy / "device_0" / "start_info.0").chmod(0o644)
    (copy / "device_0" / "start_info.0").write_text(json.dumps({"collectionTimeBegin": begin, "clockMonotonicRaw": "1000000"}))
    trace = mindspore_prof.read_trace(copy)
    assert trace.step_points is not None and trace.step_points["start_ns"][0] == 56635864652490
    assert trace.health is not None and "unknown_clock" in set(trace.health["check"])


def test_without_task_files_the_whole_timeline_serves(copy: Path) -> None:
    whole = mindspore_prof.read_trace(copy)
    timeline = copy / "device_0" / "timeline"
    timeline.chmod(0o755)
    for path in [*timeline.glob("task_time*"), *timeline.glob("hccl*")]:
        path.unlink()
    trace = mindspore_prof.read_trace(copy)
    assert ascend_step_times(trace).head(3).equals(ascend_step_times(whole).head(3))


@pytest.mark.parametrize("seed", range(4))
def test_damaged_timelines_give_what_is_left(copy: Path, seed: int) -> None:
    rng = random.Random(seed)
    for path in [path for path in copy.rglob("*") if path.is_file()]:
        path.chmod(0o644)
        data = bytearray(path.read_bytes())
        for _ in range(rng.randint(0, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.3 else data)
    try:
        trace = mindspore_prof.read_trace(copy)
    except InputError:
        return
    assert ascend_step_times(trace).height >= 0
    assert trace.health is not None


def test_later_exports_are_left_to_their_reader(copy: Path) -> None:
    assert mindspore_prof.detect(copy)
    copy.chmod(0o755)
    (copy / "mindstudio_profiler_output").mkdir()
    assert not mindspore_prof.detect(copy)
    assert not mindspore_prof.detect(copy / "device_0")
    with pytest.raises(InputError, match="no timelines"):
        mindspore_prof.read_trace(copy / "device_0")
