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
fails(RuntimeError, "no operator of type 'relu', 'Conv2D'. Types that ran: ", profiler.op_analyse, ["ReLU", "relu", "Conv2D"])
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
fails(RuntimeError, "start() needs start_profile=False: the profiler was started", profiler.start)
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


def test_results_that_are_asked_for_again_stay(run: Run) -> None:
    """By default the raw data is gone when the results are there."""
    made = run(
        PROBE
        + """
from steplens.mindspore import Profiler
profiler = Profiler(output_path="simple", start_profile=False)
profiler.start()
model().train(1, pipeline(2), dataset_sink_mode=False)
profiler.analyse(mode="async")
profiler.analyse()
written = os.stat("simple/profiler/profiler_info_0.json").st_mtime_ns
profiler.analyse()
assert os.stat("simple/profiler/profiler_info_0.json").st_mtime_ns == written
fails(RuntimeError, "holds no raw data any more", profiler.analyse, step_list=[1])
fails(RuntimeError, "holds no raw data any more", profiler.analyse, pretty=True)
profiler.analyse()
assert os.stat("simple/profiler/profiler_info_0.json").st_mtime_ns == written
print("all raised")
"""
    )
    assert made.stdout.strip().endswith("all raised")


def test_states_of_the_newer_interface(run: Run) -> None:
    made = run(
        PROBE
        + """
from steplens.mindspore import ProfilerActivity, analyse, profile, schedule, tensorboard_trace_handler
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
profile(start_profile=False, activities=[ProfilerActivity.NPU], record_shapes=True, pcie=True)
print("all raised")
"""
    )
    assert made.stdout.strip().endswith("all raised")
    assert "pcie: nothing of that can be recorded on a CPU" in made.stderr
    assert "record_shapes has no effect without ProfilerActivity.CPU" in made.stderr


@pytest.mark.parametrize("where", ["begin", "end"])
def test_a_loop_behind_a_training_that_failed_has_its_steps(run: Run, tmp_path: Path, where: str) -> None:
    """Nothing says ``on_train_end`` of a training that an exception ended."""
    told = run(
        """
from steplens.mindspore import Profiler
mode("graph")
class Fails(ms.Callback):
    def fail(self, run_context):
        if run_context.original_args().cur_step_num == 3:
            raise ValueError("on purpose")
    on_train_step_begin = fail if sys.argv[1] == "begin" else lambda self, run_context: None
    on_train_step_end = fail if sys.argv[1] == "end" else lambda self, run_context: None
profiler = Profiler(output_path="result", data_simplification=False)
try:
    model().train(1, pipeline(5), callbacks=[Fails()], dataset_sink_mode=False)
except ValueError:
    paused = time.time_ns()
    time.sleep(0.5)
    print(json.dumps([paused, time.time_ns()]))
step = stepper()
for batch in pipeline(4).create_dict_iterator(num_epochs=1):
    step(batch["data"], batch["label"])
profiler.analyse()
""",
        where,
    )
    analysed = steplens.open(tmp_path / "result")
    (trace,) = analysed.traces
    kernels = trace.required("kernels").collect()
    launched = dict(kernels.group_by("step").len().sort("step").iter_rows())
    begun = 3 if where == "end" else 2
    assert len(launched) == begun + 4 and len(set(launched.values())) == 1
    # nobody's step reaches into the pause between the two
    begin_ns, end_ns = json.loads(told.stdout.splitlines()[-1])
    for row in trace.required("steps").collect().iter_rows(named=True):
        assert row["end_ns"] <= begin_ns or row["start_ns"] >= end_ns, row


def test_an_operator_that_failed_on_its_way_does_not_cost_the_window(run: Run, tmp_path: Path) -> None:
    """Eager work fails when it is waited for, which may be at the end of the window."""
    run(
        PROBE
        + """
from steplens.mindspore import Profiler
mode("pynative")
profiler = Profiler(output_path="result")
step = stepper()
for batch in pipeline(3).create_dict_iterator(num_epochs=1):
    step(batch["data"], batch["label"])
ms.ops.matmul(ms.Tensor(np.ones([2, 8], np.float32)), ms.Tensor(np.ones([3, 3], np.float32)))
fails(RuntimeError, "MatMul", profiler.stop)
profiler.analyse()
other = Profiler(output_path="other")
other.stop()
"""
    )
    (trace,) = steplens.open(tmp_path / "result").traces
    assert trace.required("steps").collect()["id"].to_list() == [1, 2, 3]


def test_wrong_values_of_the_newer_interface_do_not_cost_the_recording(run: Run, tmp_path: Path) -> None:
    made = run(
        """
from steplens.mindspore import profile, tensorboard_trace_handler
for number, wrong in enumerate((dict(activities=["CPU"]), dict(activities=5), dict(schedule=3))):
    with profile(on_trace_ready=tensorboard_trace_handler(f"result/{number}"), **wrong) as prof:
        model().train(1, pipeline(2), dataset_sink_mode=False)
with profile(on_trace_ready="result") as prof:
    model().train(1, pipeline(2), dataset_sink_mode=False)
"""
    )
    for told in ("activities should be of ProfilerActivity, not ['CPU']", "not 5; everything is recorded",
                 "schedule should be a function, not 3; every step is recorded", "no results are written"):  # fmt: skip
        assert told in made.stderr
    for folder in sorted((tmp_path / "result").iterdir()):
        (trace,) = steplens.open(folder).traces
        assert trace.required("kernels").collect()["step"].unique().sort().to_list() == [1, 2]


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
from steplens.collect.mindspore.recording.window import open_window
print("recording" if open_window() is not None else "nothing", sys.argv[1:])
"""
    made = run_program(tmp_path, program, MS_PROFILER_OPTIONS=options)
    assert "nothing ['child']" in made.stdout and "recording []" in made.stdout


@pytest.mark.parametrize("text", ["{", "[1]", '{"start": 1}', '{"start": false}', "{}"])
def test_a_variable_that_asks_for_nothing(tmp_path: Path, text: str) -> None:
    program = """
import steplens.mindspore
from steplens.collect.mindspore.recording.window import open_window
assert open_window() is None
"""
    made = run_program(tmp_path, program, MS_PROFILER_OPTIONS=text)
    assert ("MS_PROFILER_OPTIONS" in made.stderr) == (text in ("{", "[1]", '{"start": 1}'))


def test_a_variable_that_mindspore_has_taken(tmp_path: Path) -> None:
    """Imported behind MindSpore, which then records itself, steplens says so and keeps out of it."""
    program = """
import mindspore
import steplens.mindspore
from steplens.collect.mindspore.recording.window import open_window
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


def test_doctor_says_that_mindspore_is_recorded(tmp_path: Path) -> None:
    program = "import sys\nfrom steplens.cli.main import main\nsys.exit(main(['doctor', '--json']))\n"
    made = run_program(tmp_path, program)
    (check,) = [check for check in json.loads(made.stdout)["checks"] if check["name"] == "MindSpore"]
    assert check["available"] and "is recorded" in check["detail"]
