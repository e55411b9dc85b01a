"""Calls in a wrong state raise with their cause, in either release's way; a failed analysis is not swallowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import steplens

from .conftest import Run, run_program

pytestmark = pytest.mark.slow

PROBE = """
def fails(kind, words, call, *arguments, **more):
    try:
        call(*arguments, **more)
    except kind as error:
        assert words in str(error), (words, str(error))
    else:
        raise AssertionError(f"{words}: nothing was raised")

mode("graph")
"""


def test_states_of_the_r2_4_interface(run: Run, tmp_path: Path) -> None:
    made = run(
        PROBE
        + """
from steplens.mindspore import Profiler
fails(TypeError, "start_profile", Profiler, start_profile=1)
os.environ["PROFILING_MODE"] = "true"
fails(RuntimeError, "PROFILING_MODE", Profiler)
del os.environ["PROFILING_MODE"]

waiting = Profiler(start_profile=False, output_path="other")
fails(RuntimeError, "has not been started", waiting.stop)
fails(RuntimeError, "nothing was recorded", waiting.analyse)
profiler = Profiler(output_path="result with spaces und Umläuten", data_simplification=False)
fails(RuntimeError, "already been started", profiler.start)
fails(RuntimeError, "another profiler is recording", waiting.start)
model().train(1, pipeline(2), dataset_sink_mode=False)
profiler.stop()
fails(RuntimeError, "has not been started", profiler.stop)
profiler.start()
model().train(1, pipeline(2), dataset_sink_mode=False)
fails(TypeError, "step_list", profiler.analyse, step_list=3)
fails(ValueError, "consecutive", profiler.analyse, step_list=[1, 3])
fails(RuntimeError, "holds 4 steps; step 9 was asked for", profiler.analyse, step_list=[8, 9])
profiler.analyse(mode="sometimes", step_list=[2, 3])
profiler.analyse()
profiler.analyse(offline_path="result with spaces und Umläuten")
fails(TypeError, "op_name", profiler.op_analyse, 3)
fails(TypeError, "op_name", profiler.op_analyse, [])
fails(TypeError, "device_id", profiler.op_analyse, "MatMul", "0")
fails(RuntimeError, "no operator of type 'Conv2D'", profiler.op_analyse, "Conv2D")
fails(RuntimeError, "no data of rank 3", profiler.op_analyse, "MatMul", 3)
found = json.loads(profiler.op_analyse(["MatMul", "ReLU"], 0))
assert found["device_id"] == "0" and sum(item["op_occurrences"] for item in found["ReLU"]) == 4, found
fails(RuntimeError, "does not exist", Profiler.offline_analyse, "nowhere")
fails(TypeError, "path", Profiler.offline_analyse, 3)
os.makedirs("empty")
fails(RuntimeError, "holds no data recorded with MindSpore", Profiler.offline_analyse, "empty")
print("all raised")
"""
    )
    assert made.stdout.strip().endswith("all raised")
    warnings = [line for line in made.stderr.splitlines() if "profiler.py" in line]
    assert len(warnings) == 1 and "mode should be" in warnings[0]


def test_states_of_the_r2_2_interface(run: Run) -> None:
    made = run(
        PROBE
        + """
from steplens.mindspore.r2_2 import Profiler
profiler = Profiler(output_path="first")
fails(RuntimeError, "start_profile=False", profiler.start)
model().train(1, pipeline(2), dataset_sink_mode=False)
profiler.stop()
fails(RuntimeError, "start_profile=False", profiler.start)
profiler.analyse()
assert os.path.exists("first/profiler/FRAMEWORK")
later = Profiler(output_path="second", start_profile=False)
later.start()
later.stop()
fails(RuntimeError, "repeated start and stop", later.start)
print("all raised")
"""
    )
    assert made.stdout.strip().endswith("all raised")


def test_states_of_the_newer_interface(run: Run) -> None:
    made = run(
        PROBE
        + """
from steplens.mindspore import analyse, profile, schedule, tensorboard_trace_handler
fails(TypeError, "start_profile", profile, start_profile=None)
handler = tensorboard_trace_handler("result")
prof = profile(start_profile=False, schedule=schedule(wait=0, active=1, repeat=1), on_trace_ready=handler)
fails(RuntimeError, "has not been started", prof.stop)
fails(RuntimeError, "has not been started", prof.step)
prof.start()
model().train(1, pipeline(2), dataset_sink_mode=False)
prof.step()
prof.stop()
fails(TypeError, "profiler_path", analyse, 3)
fails(RuntimeError, "data simplification removed it", analyse, "result")
print("all raised")
"""
    )
    assert made.stdout.strip().endswith("all raised")


def test_a_failed_file_is_named(run: Run, tmp_path: Path) -> None:
    """A folder stands where a file should be written: the others are, the failure is raised and recorded."""
    run(
        PROBE
        + """
from steplens.mindspore import Profiler
profiler = Profiler(output_path="result")
model().train(1, pipeline(2), dataset_sink_mode=False)
profiler.stop()
os.makedirs("result/profiler/cpu_framework_0.txt/in the way")
fails(RuntimeError, "cpu_framework_0.txt", profiler.analyse)
"""
    )
    info = json.loads((tmp_path / "result" / "profiler" / "profiler_info_0.json").read_text())
    assert list(info["failed"]) == ["cpu_framework_0.txt"]
    assert (tmp_path / "result" / "profiler" / "cpu_op_type_info_0.csv").is_file()
    # nothing is removed that could not be analysed
    assert (tmp_path / "result" / "profiler" / "FRAMEWORK" / "window_0_0" / "window.json").is_file()


def test_a_killed_window_is_named(run: Run, tmp_path: Path) -> None:
    run(
        PROBE
        + """
import signal
from steplens.mindspore import Profiler
profiler = Profiler(output_path="result")
model().train(1, pipeline(2), dataset_sink_mode=False)
os.kill(os.getpid(), signal.SIGKILL)
""",
        code=-9,
    )
    text = "from steplens.mindspore import Profiler\nProfiler.offline_analyse('result')\n"
    assert "still open when its process ended" in run_program(tmp_path, text, code=1).stderr


def test_the_variable_does_not_start_twice(run: Run, tmp_path: Path) -> None:
    """A child of the recorded process starts no recording of its own."""
    options = json.dumps({"start": True, "output_path": str(tmp_path / "result")})
    program = """
import steplens.mindspore
import subprocess, sys, os
if len(sys.argv) == 1:
    print(subprocess.run([sys.executable, __file__, "child"], capture_output=True, text=True, check=True).stdout)
import mindspore as ms
from steplens.mindspore.window import open_window
print("recording" if open_window() is not None else "nothing", sys.argv[1:])
"""
    made = run_program(tmp_path, program, MS_PROFILER_OPTIONS=options)
    assert "nothing ['child']" in made.stdout and "recording []" in made.stdout


@pytest.mark.parametrize("text", ["{", "[1]", '{"start": 1}', '{"start": false}', "{}"])
def test_a_variable_that_asks_for_nothing(tmp_path: Path, text: str) -> None:
    program = "import steplens.mindspore\nfrom steplens.mindspore.window import open_window\nassert open_window() is None\n"
    made = run_program(tmp_path, program, MS_PROFILER_OPTIONS=text)
    assert ("MS_PROFILER_OPTIONS" in made.stderr) == (text in ("{", "[1]", '{"start": 1}'))


def test_a_variable_that_mindspore_has_taken(tmp_path: Path) -> None:
    """Imported behind MindSpore, which then records itself, steplens says so and keeps out of it."""
    program = """
import mindspore
import steplens.mindspore
from steplens.mindspore.window import open_window
assert open_window() is None
"""
    options = json.dumps({"start": True, "output_path": str(tmp_path / "result")})
    made = run_program(tmp_path, program, MS_PROFILER_OPTIONS=options)
    assert "import steplens.mindspore before mindspore" in made.stderr


def test_two_profilers_at_once_are_said(run: Run, tmp_path: Path) -> None:
    """MindSpore's own profiler uses the same bindings: one of the two gets nothing, and lost launches are a finding."""
    made = run(
        PROBE
        + """
import mindspore.profiler
from steplens.mindspore import Profiler
profiler = Profiler(output_path="result", data_simplification=False)
own = mindspore.profiler.profile()
model().train(1, pipeline(2), dataset_sink_mode=False)
own.stop()
profiler.stop()
other = mindspore.profiler.profile()
later = Profiler(output_path="later")
later.stop()
other.stop()
"""
    )
    assert "MindSpore's own profiler is at work too" in made.stderr
    health = steplens.open(tmp_path / "result").health()
    lost = health.filter(check="missing_file", severity="error")
    assert lost.height == 1 and "every launch of that window" in lost["message"][0]
