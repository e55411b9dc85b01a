"""``with_stack``: the calls of Python beside the launches, against what the program notes down itself."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import steplens
from steplens.collect.mindspore.recording.python_calls import PythonCalls
from steplens.readers.mindspore.mindspore_find import find_sources

from .conftest import Recorded, Run

pytestmark = pytest.mark.slow

_PROGRAM = """
mode(sys.argv[1])
from steplens.mindspore import Profiler

noted = []

def inner(number):
    time.sleep(0.002)
    if number == 3:
        raise KeyError(number)
    return number

def outer(number):
    noted.append(time.time_ns())
    try:
        inner(number)
    except KeyError:
        pass
    finally:
        noted.append(time.time_ns())

step = stepper()
profiler = Profiler(start_profile=False, output_path="result", profile_framework="time", with_stack=True,
                    data_simplification=False)
for number, batch in enumerate(pipeline(6).create_dict_iterator(num_epochs=1)):
    if number == 1:
        profiler.start()
    step(batch["data"], batch["label"])
    outer(number)
    if number == 4:
        profiler.stop()
profiler.analyse()
print(json.dumps(noted))
"""


def calls_of(recorded_once: Recorded, folder: Path, mode: str) -> tuple[str, str]:
    """A copy of what the program recorded, and what it printed."""
    recording = recorded_once(f"calls_{mode}", _PROGRAM, mode, fresh=True)
    shutil.copytree(recording / "result", folder / "result")
    return (recording / "stdout").read_text(), (recording / "stderr").read_text()


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_calls_are_those_of_the_program(recorded_once: Recorded, tmp_path: Path, mode: str) -> None:
    stdout, stderr = calls_of(recorded_once, tmp_path, mode)
    assert "nothing of that can be recorded" not in stderr
    noted = json.loads(stdout.splitlines()[-1])
    recorded = list(zip(noted[2:10:2], noted[3:10:2], strict=True))
    (source,) = find_sources(tmp_path / "result" / "profiler")
    trace = source.read()
    assert not {"damaged_records", "unbalanced_python_calls", "missing_python_calls", "missing_data"} & set(
        trace.required("health").collect()["check"].cast(pl.String)
    )
    calls = trace.required("python").collect().with_columns(pl.col("name").cast(pl.String))
    of_program = calls.filter(pl.col("name").str.contains(r"train\.py\(\d+\): "))
    assert Counter(of_program["name"].str.extract(r": (outer|inner)$").drop_nulls()) == {"outer": 4, "inner": 4}
    outer = of_program.filter(pl.col("name").str.ends_with(": outer")).sort("start_ns")
    inner = of_program.filter(pl.col("name").str.ends_with(": inner")).sort("start_ns")
    for (begin, end), call in zip(recorded, outer.iter_rows(named=True), strict=True):
        assert call["start_ns"] <= begin <= end <= call["end_ns"]
    assert (outer["end_ns"][:-1] <= outer["start_ns"][1:]).all()
    assert inner["parent"].to_list() == outer["id"].to_list()
    module = of_program.filter(pl.col("name").str.ends_with(": <module>"))
    assert outer["parent"].to_list() == module["id"].to_list() * 4 and module["parent"].to_list() == [None]
    # a function written in C, and one that an exception left
    sleeps = calls.filter(pl.col("name") == "<built-in function sleep>", pl.col("parent").is_in(inner["id"].implode()))
    assert ((sleeps["end_ns"] - sleeps["start_ns"]) >= 2_000_000).all() and sleeps.height == 4
    # nothing of the profiler itself
    own = Path(steplens.__file__).parent
    assert not calls["name"].str.contains(str(own), literal=True).any() and not calls["name"].str.contains("^steplens/").any()
    parents = calls.join(calls, left_on="parent", right_on="id")
    assert ((parents["start_ns"] >= parents["start_ns_right"]) & (parents["end_ns"] <= parents["end_ns_right"])).all()
    # the finished results have the same calls, as the timeline's flame graph
    (output,) = (tmp_path / "result" / "profiler").glob("rank-0_*_ascend_ms")
    written = steplens.open(output).trace().required("python").collect()
    assert Counter(written["name"].cast(pl.String)) == Counter(calls["name"])
    # also where they are all that is left
    shutil.rmtree(tmp_path / "result" / "profiler" / "FRAMEWORK")
    left = steplens.open(tmp_path / "result").trace()
    columns = ("name", "start_ns", "end_ns", "tid")
    frames = [one.select(pl.col(columns).cast(pl.String)).sort(columns) for one in (calls, left.required("python").collect())]
    assert frames[0].equals(frames[1])
    assert left.kernels is not None and left.kernels.height == trace.required("kernels").collect().height
    # without a readable timeline the rest stays
    shutil.rmtree(tmp_path / "result" / "profiler" / ".steplens")
    for file in (output / "ASCEND_PROFILER_OUTPUT").iterdir():
        if file.suffix in (".json", ".csv", ".db"):
            file.write_bytes(b"damaged")
    rest = steplens.open(tmp_path / "result")
    assert rest.trace().kernels is not None and "python" not in rest.trace()
    assert "missing_python_calls" in rest.health()["check"].to_list()


def test_another_tool_keeps_its_place(run: Run, tmp_path: Path) -> None:
    told = run(
        """
mode("pynative")
from steplens.mindspore import Profiler
seen = []
def observe(frame, event, argument):
    seen.append(event)
sys.setprofile(observe)
profiler = Profiler(output_path="result", profile_framework="all", with_stack=True, data_simplification=False)
stepper()(ms.Tensor(np.ones([2, 8], np.float32)), ms.Tensor(np.ones([2], np.int32)))
profiler.stop()
assert sys.getprofile() is observe
sys.setprofile(None)
profiler.analyse()
"""
    )
    assert "another tool observes the calls of Python" in told.stderr
    (source,) = find_sources(tmp_path / "result" / "profiler")
    trace = source.read()
    assert "python" not in trace
    checks = trace.required("health").collect()["check"].cast(pl.String).to_list()
    assert "missing_python_calls" in checks


def test_a_tool_that_takes_the_place_is_said() -> None:
    calls = PythonCalls()
    before = sys.getprofile()
    calls.start()
    sys.setprofile(lambda frame, event, argument: None)
    try:
        calls.stop()
    finally:
        sys.setprofile(before)
    assert "another tool began to observe the calls of Python" in calls.problem


def test_a_full_record_ends_with_a_word(run: Run, tmp_path: Path) -> None:
    run(
        """
from steplens.collect.mindspore.recording.python_calls import PythonCalls
def leaf(): pass
def root():
    calls.start()
    for _ in range(100):
        leaf()
    calls.stop()
calls = PythonCalls(most=50)
root()
assert sys.getprofile() is None and "50 records" in calls.problem
calls.save(pathlib.Path("."))
""".replace("from steplens", "import pathlib\nfrom steplens", 1),
        fresh=True,
    )
    from steplens.readers.mindspore.windows.mindspore_python import read_calls
    from steplens.trace.health import HealthLog

    health = HealthLog()
    calls = read_calls(tmp_path, 1, 2, health).with_columns(pl.col("name").cast(pl.String))
    assert not health.findings
    assert set(calls["name"].str.extract(r": (\S+)$").drop_nulls()) == {"<module>", "root", "leaf"}
    assert calls.filter(pl.col("name").str.ends_with(": leaf")).height == 24


@pytest.mark.parametrize("damage", ["half", "names", "number"])
def test_damaged_records_are_told(recorded_once: Recorded, tmp_path: Path, damage: str) -> None:
    calls_of(recorded_once, tmp_path, "pynative")
    (folder,) = (tmp_path / "result" / "profiler" / "FRAMEWORK").glob("window_0_0")
    records = folder / "python_calls.bin"
    data = records.read_bytes()
    if damage == "half":
        records.write_bytes(data[: len(data) // 2 + 3])
    elif damage == "names":
        (folder / "python_names.json").write_bytes(b"{")
    else:
        records.write_bytes(data[:8] + b"\xff" * 7 + b"\x7f" + data[16:])
    (source,) = find_sources(tmp_path / "result" / "profiler")
    trace = source.read()
    checks = set(trace.required("health").collect()["check"].cast(pl.String))
    assert checks & {"damaged_records", "damaged_side_file"}
    assert ("python" in trace) is (damage != "names")
