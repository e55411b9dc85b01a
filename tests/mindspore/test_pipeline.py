"""The sequences of calls that end in a crash of MindSpore's data engine: none is reached through the interfaces.

Each program does what a script may do; the data engine died of the same with a plain start and stop.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import steplens
from steplens.offline.mindspore.ranks import analyse_all_ranks
from steplens.offline.mindspore.settings import Options
from steplens.readers.mindspore.mindspore_find import find_sources
from steplens.trace.trace import Trace

from .conftest import Recorded, Run

pytestmark = pytest.mark.slow

BEGIN = """
import gc
from steplens.mindspore import Profiler
mode("pynative")
ds.config.set_monitor_sampling_interval(20)
step = stepper()
def train(iterator, steps):
    for _ in range(steps):
        batch = next(iterator)
        step(batch["data"], batch["label"])
def recorder(**more):
    return Profiler(output_path="result", start_profile=False, data_process=True, data_simplification=False, **more)
def iterator(batches=60):
    return pipeline(batches, 0.005).create_dict_iterator(num_epochs=1)
"""

SEQUENCES = {
    "many windows on one iterator": """
profiler = recorder()
data = iterator()
for window in range(8):
    profiler.start()
    train(data, 5)
    profiler.stop()
    train(data, 2)
profiler.analyse()
""",
    "a second pipeline beside the first": """
profiler = recorder()
first = iterator()
profiler.start()
train(first, 5)
second = iterator()
train(second, 5)
profiler.stop()
profiler.start()
train(first, 5)
third = iterator()
train(third, 5)
profiler.stop()
profiler.analyse()
""",
    "a window after the pipeline is gone": """
profiler = recorder()
data = iterator()
profiler.start()
train(data, 5)
profiler.stop()
data.stop()
del data
gc.collect()
profiler.start()
step(ms.Tensor(np.ones([2, 8], np.float32)), ms.Tensor(np.ones([2], np.int32)))
profiler.stop()
profiler.analyse()
""",
    "a pipeline that was never started": """
profiler = recorder()
data = iterator()
train(data, 3)
del data
gc.collect()
profiler.start()
data = iterator()
train(data, 5)
profiler.stop()
profiler.analyse()
""",
    "one pipeline after the other": """
profiler = recorder()
for window in range(4):
    data = iterator()
    profiler.start()
    train(data, 8)
    profiler.stop()
    profiler.analyse()
    del data
    gc.collect()
""",
    "two profilers on one pipeline": """
data = None
for name in ("first", "second"):
    profiler = Profiler(output_path=name, start_profile=False, data_process=True, data_simplification=False)
    data = data or iterator()
    profiler.start()
    train(data, 5)
    profiler.analyse()
""",
    "a profiler made behind its pipeline": """
data = iterator()
profiler = recorder()
profiler.start()
train(data, 5)
profiler.stop()
profiler.analyse()
""",
    "the end of the program inside a window": """
profiler = recorder()
profiler.start()
train(iterator(), 5)
""",
}


def test_workers_in_processes_of_their_own(run: Run, tmp_path: Path) -> None:
    """Workers are forked inside the window; they record and save nothing, and leave the window to their parent."""
    made = run(
        """
from steplens.mindspore import Profiler
mode("graph")

def shift(data):
    time.sleep(0.002)
    return data + 1

profiler = Profiler(output_path="result", data_process=True, data_simplification=False)
data = pipeline(40).map(shift, ["data"], num_parallel_workers=2, python_multiprocessing=True)
model().train(1, data, dataset_sink_mode=False)
profiler.analyse()
"""
    )
    assert "ERROR" not in made.stderr and "was not stopped" not in made.stderr, made.stderr
    trace = trace_of(tmp_path)
    assert trace.required("steps").select(pl.len()).collect().item() == 40
    assert batches(tmp_path) == 40
    kinds = trace.required("pipeline_ops").collect()["type"].cast(pl.String).to_list()
    assert any(kind.startswith("Map") for kind in kinds)


# each round is another chance for the sampler to come between
@pytest.mark.parametrize("rounds", [2, pytest.param(8, marks=pytest.mark.long)])
def test_workers_that_are_being_started(run: Run, rounds: int) -> None:
    """The data engine's sampler ended the training when it asked for a worker that had no process id yet."""
    made = run(
        f"""
import gc
from steplens.mindspore import Profiler
mode("graph")
ds.config.set_monitor_sampling_interval(10)

def shift(data):
    return data + 1

profiler = Profiler(output_path="result", start_profile=False, data_process=True, data_simplification=False)
for number in range({rounds}):
    profiler.start()
    data = pipeline(6).map(shift, ["data"], num_parallel_workers=2, python_multiprocessing=True)
    iterator = data.create_dict_iterator(num_epochs=1)
    for batch in iterator:
        pass
    profiler.stop()
    profiler.analyse()
    iterator.stop()
    del iterator
    gc.collect()
"""
    )
    assert "Unable to cast" not in made.stderr


def trace_of(folder: Path) -> Trace:
    (source,) = find_sources(folder / "result" / "profiler")
    return source.read()


def batches(folder: Path) -> int:
    return int(trace_of(folder).required("pipeline_batches").select(pl.len()).collect().item())


def problems(folder: Path) -> str:
    files = sorted((folder / "result" / "profiler" / "FRAMEWORK").glob("window_*/window.json"))
    return " ".join(finding["message"] for file in files for finding in json.loads(file.read_text())["health"])


@pytest.fixture
def record(recorded_once: Recorded) -> Callable[[str], Path]:
    """Gives the folder in which a sequence has run to its end, once for all tests that read what it recorded."""
    return lambda name: recorded_once(f"sequence_{name.replace(' ', '_')}", BEGIN + SEQUENCES[name])


@pytest.mark.parametrize("name", SEQUENCES)
def test_nothing_crashes(record: Callable[[str], Path], name: str) -> None:
    record(name)


# what crashed did so in some rounds only
@pytest.mark.long
@pytest.mark.parametrize("name", SEQUENCES)
def test_nothing_crashes_in_many_rounds(run: Run, name: str) -> None:
    for _ in range(3):
        run(BEGIN + SEQUENCES[name])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a second pipeline beside the first", "another data pipeline was started while the first one was there"),
        ("two profilers on one pipeline", "this data pipeline has been recorded and saved"),
    ],
)
def test_a_second_recording_that_is_not_made_is_said(record: Callable[[str], Path], name: str, words: str) -> None:
    assert any(words in file.read_text() for file in record(name).glob("*/profiler/FRAMEWORK/window_*/window.json"))


def test_windows_share_one_recording_and_are_cut(record: Callable[[str], Path]) -> None:
    folder = record("many windows on one iterator")
    trace = trace_of(folder)
    rows = trace.required("pipeline_batches").filter(pl.col("kind").cast(pl.String) == "iterate").collect()
    recorded = set(rows["batch"].to_list())
    # 8 times 5 batches of 7; of the time stamps, whole ms of a clock of their own, one may fall on either side of a border
    expected = {7 * window + number for window in range(8) for number in range(1, 6)}
    assert len(recorded ^ expected) <= 8 and len(recorded) >= 36
    assert not problems(folder)


def test_its_times_are_right_where_something_else_runs_between_two_looks_at_a_clock(run: Run, tmp_path: Path) -> None:
    told = run(
        BEGIN
        + """
profiler = recorder()
data = iterator()
profiler.start()
train(data, 5)
steady, looks = time.monotonic_ns, []
def disturbed():
    looks.append(None)
    if len(looks) in (1, 2, 4):
        time.sleep(0.05)
    return steady()
time.monotonic_ns = disturbed
profiler.stop()
profiler.analyse()
tries = []
for _ in range(1000):
    before, unix = steady(), time.time_ns()
    tries.append((steady() - before, unix - before))
print(len(looks), min(tries)[1])
"""
    )
    looks, offset_ns = map(int, told.stdout.split()[-2:])
    assert looks > 4
    (file,) = (tmp_path / "result" / "profiler" / "FRAMEWORK").glob("pipeline_0_*/pipeline.json")
    assert json.loads(file.read_text())["clock_offset_ns"] == pytest.approx(offset_ns, abs=1_000_000)


def test_what_is_not_recorded_is_said(record: Callable[[str], Path], tmp_path: Path) -> None:
    shutil.copytree(record("a profiler made behind its pipeline") / "result", tmp_path / "result")
    assert "made before the profiler" in problems(tmp_path)
    health = trace_of(tmp_path).health
    assert health is not None and "missing_data_pipeline" in health["check"].to_list()
    # nor is it forgotten with the raw data
    analyse_all_ranks(tmp_path / "result", Options(data_simplification=True))
    assert not (tmp_path / "result" / "profiler" / "FRAMEWORK").exists()
    for folder in (tmp_path / "result", *(tmp_path / "result" / "profiler").glob("rank-*")):
        (trace,) = steplens.open(folder).traces
        assert trace.health is not None and trace.health["check"].to_list().count("missing_data_pipeline") == 1


def test_pipelines_in_turn_are_recorded(record: Callable[[str], Path]) -> None:
    folder = record("one pipeline after the other")
    folders = sorted((folder / "result" / "profiler" / "FRAMEWORK").glob("pipeline_0_*"))
    assert len(folders) == 4
    for place in folders:
        lines = (place / "dataset_iterator_profiling_0.txt").read_text().splitlines()
        assert len(lines) >= 4 * 7
    assert not problems(folder)


def test_a_window_that_was_left_open_is_saved(record: Callable[[str], Path]) -> None:
    folder = record("the end of the program inside a window")
    assert "was not stopped" in (folder / "stderr").read_text()
    assert trace_of(folder).required("steps").select(pl.len()).collect().item() == 5
    assert batches(folder) >= 4
