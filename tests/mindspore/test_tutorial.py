"""The programs of MindSpore's tutorial, unchanged but for their imports, with real MindSpore."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import steplens
from steplens.cli.main import app

from .conftest import Run, run_program
from .programs import WAITING

pytestmark = pytest.mark.slow

LONG = pytest.mark.long
#: where both modes take the same way through steplens, one of them is enough
ONE_MODE = ["graph", pytest.param("pynative", marks=LONG)]

FLAT = {
    "cpu_op_type_info_0.csv", "cpu_op_detail_info_0.csv", "cpu_op_execute_timestamp_0.txt", "cpu_framework_0.txt",
    "cpu_timeline_display_0.json", "cpu_timeline_summary_0.json", "profiler_info_0.json",
}  # fmt: skip
#: a graph tells where its backward pass ends
GRAPH = FLAT | {"step_trace_raw_0_detail_time.csv", "step_trace_point_info_0.json"}


def steps_of(folder: Path) -> list[int]:
    """The steps of a result, of which every launch lies in one."""
    run = steplens.open(folder)
    (trace,) = run.traces
    kernels = trace.required("kernels").collect()
    assert kernels.height and kernels["step"].null_count() == 0
    return trace.required("steps").sort("start_ns").collect()["id"].to_list()


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("mode", ONE_MODE)
def test_custom_loop(run: Run, tmp_path: Path, mode: str) -> None:
    run(
        f"""
from steplens.mindspore import Profiler
ms.Profiler = Profiler
mode({mode!r})
step = stepper()
def train():
    step(data["data"], data["label"])

profiler = ms.Profiler(start_profile=False)
data_loader = pipeline(300).create_dict_iterator()

for i, data in enumerate(data_loader):
    train()
    if i==100:
        profiler.start()
    if i==200:
        profiler.stop()

profiler.analyse()
"""
    )
    # started behind the training of batch 100, stopped behind that of batch 200; steps count from 1
    assert steps_of(tmp_path / "data") == list(range(102, 202))
    assert files(tmp_path / "data" / "profiler") == (GRAPH if mode == "graph" else FLAT)


CALLBACKS = """
from steplens.mindspore import Profiler
ms.Profiler = Profiler
from mindspore.communication import get_rank

def get_real_rank():
    \"\"\"get rank id\"\"\"
    try:
        return get_rank()
    except RuntimeError:
        return int(os.getenv("RANK_ID", "0"))

class StopAtStep(ms.Callback):
    def __init__(self, start_step, stop_step):
        super(StopAtStep, self).__init__()
        self.start_step = start_step
        self.stop_step = stop_step
        rank_id = get_real_rank()
        output_path = os.path.join("profiler_data", f"rank_{rank_id}")
        self.profiler = ms.Profiler(start_profile=False, output_path=output_path)

    def on_train_step_begin(self, run_context):
        cb_params = run_context.original_args()
        step_num = cb_params.cur_step_num
        if step_num == self.start_step:
            self.profiler.start()

    def on_train_step_end(self, run_context):
        cb_params = run_context.original_args()
        step_num = cb_params.cur_step_num
        if step_num == self.stop_step:
            self.profiler.stop()
            self.profiler.analyse()

class StopAtEpoch(ms.Callback):
    def __init__(self, start_epoch, stop_epoch):
        super(StopAtEpoch, self).__init__()
        self.start_epoch = start_epoch
        self.stop_epoch = stop_epoch
        rank_id = get_real_rank()
        output_path = os.path.join("profiler_data", f"rank_{rank_id}")
        self.profiler = ms.Profiler(start_profile=False, output_path=output_path)

    def on_train_epoch_begin(self, run_context):
        cb_params = run_context.original_args()
        epoch_num = cb_params.cur_epoch_num
        if epoch_num == self.start_epoch:
            self.profiler.start()

    def on_train_epoch_end(self, run_context):
        cb_params = run_context.original_args()
        epoch_num = cb_params.cur_epoch_num
        if epoch_num == self.stop_epoch:
            self.profiler.stop()
            self.profiler.analyse()
"""


@pytest.mark.parametrize("mode", ONE_MODE)
def test_callback_of_steps(run: Run, tmp_path: Path, mode: str) -> None:
    run(CALLBACKS + f"mode({mode!r})\nmodel().train(3, pipeline(5), callbacks=[StopAtStep(4, 9)], dataset_sink_mode=False)\n")
    assert steps_of(tmp_path / "profiler_data") == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("sink", [False, True])
def test_callback_of_epochs(run: Run, tmp_path: Path, sink: bool) -> None:
    run(CALLBACKS + f"mode('graph')\nmodel().train(4, pipeline(5), callbacks=[StopAtEpoch(2, 3)], dataset_sink_mode={sink})\n")
    assert steps_of(tmp_path / "profiler_data") == list(range(6, 16))


def test_offline_analysis(run: Run, tmp_path: Path) -> None:
    run(
        """
from steplens.mindspore import Profiler
ms.Profiler = Profiler
mode("graph")
for rank in range(2):
    os.environ["RANK_ID"] = str(rank)
    profiler = ms.Profiler(output_path=f"profiler_data/rank_{rank}")
    model().train(1, pipeline(4 + rank), dataset_sink_mode=False)
    profiler.stop()
"""
    )
    assert files(tmp_path / "profiler_data" / "rank_0" / "profiler") == set()
    again = """
from steplens.mindspore import Profiler

Profiler.offline_analyse(path='profiler_data', pretty=False, step_list=None, data_simplification=True)
"""
    run_program(tmp_path, again)
    for rank, count in ((0, 4), (1, 5)):
        there = tmp_path / "profiler_data" / f"rank_{rank}" / "profiler"
        assert files(there) == {name.replace("_0", f"_{rank}") for name in GRAPH}
        assert len(steps_of(there)) == count
        (made,) = there.glob(f"rank-{rank}_*_ascend_ms")
        assert {"trace_view.json", "step_trace_time.csv"} <= files(made / "ASCEND_PROFILER_OUTPUT")
    # the raw data is gone, and a second analysis says so
    assert "data simplification removed it" in run_program(tmp_path, again, code=1).stderr


NET = """
import steplens.mindspore
import numpy as np
from mindspore import nn
from mindspore.train import Model
import mindspore as ms
import mindspore.dataset as ds
from steplens.mindspore import DynamicProfilerMonitor

class Net(nn.Cell):
    def __init__(self):
        super(Net, self).__init__()
        self.fc = nn.Dense(2, 2)

    def construct(self, x):
        return self.fc(x)


def generator():
    for i in range(2):
        yield (np.ones([2, 2]).astype(np.float32), np.ones([2]).astype(np.int32))


def train(net):
    optimizer = nn.Momentum(net.trainable_params(), 1, 0.9)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True)
    data = ds.GeneratorDataset(generator, ["data", "label"])

    profile_callback = DynamicProfilerMonitor(cfg_path="./dyn_cfg", output_path="./dynprof_data")
    model = Model(net, loss, optimizer)
    model.train(10, data, callbacks=[profile_callback])


if __name__ == '__main__':
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")

    # Train Mode
    net = Net()
    train(net)
"""

CONFIGURATION: dict[str, Any] = {
    "start_step": 10, "stop_step": 10, "aicore_metrics": -1, "profiler_level": -1, "profile_framework": -1, "analyse_mode": 0,
    "profile_communication": False, "parallel_strategy": True, "with_stack": True, "data_simplification": False,
}  # fmt: skip


def configure(folder: Path, **changes: Any) -> None:
    (folder / "dyn_cfg").mkdir(parents=True, exist_ok=True)
    (folder / "dyn_cfg" / "profiler_config.json").write_text(json.dumps({**CONFIGURATION, **changes}))


def test_dynamic_monitor_makes_its_configuration(tmp_path: Path) -> None:
    run_program(tmp_path, NET)
    made = json.loads((tmp_path / "dyn_cfg" / "profiler_config.json").read_text())
    assert made == {**CONFIGURATION, "start_step": -1, "stop_step": -1, "analyse_mode": -1, "parallel_strategy": False,
                    "with_stack": False, "data_simplification": True}  # fmt: skip
    assert not (tmp_path / "dynprof_data").exists()


@pytest.mark.parametrize(("start", "stop"), [pytest.param(10, 10, marks=LONG), (1, 3), (19, 20)])
def test_dynamic_monitor_captures(tmp_path: Path, start: int, stop: int) -> None:
    configure(tmp_path, start_step=start, stop_step=stop)
    run_program(tmp_path, NET)
    there = tmp_path / "dynprof_data" / f"rank0_start{start}_stop{stop}"
    assert steps_of(there) == list(range(start, stop + 1))
    assert files(there / "profiler") == GRAPH


def test_dynamic_monitor_in_a_loop_follows_an_edit(run: Run, tmp_path: Path) -> None:
    """The file is edited while the training runs; every rank of a job would begin at the same step."""
    program = f"""
from steplens.mindspore import DynamicProfilerMonitor
mode("pynative")
{WAITING}
monitor = DynamicProfilerMonitor("dyn_cfg", "dynprof_data")
step = stepper()
for number, batch in enumerate(pipeline(2000).create_dict_iterator(num_epochs=1), 1):
    step(batch["data"], batch["label"])
    monitor.step()
    if number == 20:
        text = json.loads(open("dyn_cfg/profiler_config.json").read())
        text.update(start_step=120, stop_step=123, analyse_mode="sync")
        open("dyn_cfg/profiler_config.json", "w").write(json.dumps(text))
    if number == 100:
        wait_for(lambda found: found[0].requests)
    if number == 130:
        break
"""
    run(program)
    assert steps_of(tmp_path / "dynprof_data" / "rank0_start120_stop123") == [120, 121, 122, 123]


@pytest.mark.parametrize(
    ("start", "stop", "mode"),
    [
        (1, 3, "graph"),
        (1, 1, "pynative"),
        *(pytest.param(*case, marks=LONG) for case in [(1, 3, "pynative"), (1, 1, "graph"), (2, 3, "graph"), (2, 3, "pynative")]),
    ],
)
def test_dynamic_monitor_in_a_loop_captures_the_first_step(run: Run, tmp_path: Path, mode: str, start: int, stop: int) -> None:
    """The first step begins when the loop asks for its first batch, and ends where it calls step()."""
    program = """
from steplens.mindspore import DynamicProfilerMonitor
mode(sys.argv[1])
step = stepper()
step(ms.Tensor(np.zeros([2, 8], np.float32)), ms.Tensor(np.zeros([2], np.int32))).asnumpy()
monitor = DynamicProfilerMonitor("dyn_cfg", "dynprof_data")
asked = []
batches = pipeline(6).create_dict_iterator(num_epochs=1)
while True:
    asked.append(time.time_ns())
    batch = next(batches, None)
    if batch is None:
        break
    step(batch["data"], batch["label"]).asnumpy()
    monitor.step()
print(json.dumps(asked))
"""
    configure(tmp_path, start_step=start, stop_step=stop)
    made = run(program, mode)
    asked = json.loads(made.stdout.strip().splitlines()[-1])
    assert len(asked) == 7
    there = tmp_path / "dynprof_data" / f"rank0_start{start}_stop{stop}"
    assert steps_of(there) == list(range(start, stop + 1))
    (trace,) = steplens.open(there).traces
    launches = trace.required("kernels").collect().group_by("step").agg("name").sort("step")
    assert len({tuple(sorted(names)) for names in launches["name"].cast(pl.List(pl.String))}) == 1
    # each ends behind the asking for its own batch and before that for the next, where step() is called
    for number, begin_ns, end_ns in trace.required("steps").select("id", "start_ns", "end_ns").collect().iter_rows():
        assert asked[max(number - 2, 0)] < begin_ns < end_ns
        assert asked[number - 1] < end_ns < asked[number]


def test_an_evaluation_before_the_training_is_not_its_first_step(run: Run, tmp_path: Path) -> None:
    program = """
from steplens.mindspore import DynamicProfilerMonitor
mode("graph")
monitor = DynamicProfilerMonitor("dyn_cfg", "dynprof_data")
net, loss, optimizer = training()
trained = Model(net, loss, optimizer, metrics={"accuracy"})
trained.eval(pipeline(3), dataset_sink_mode=False)
trained.train(1, pipeline(4), callbacks=[monitor], dataset_sink_mode=False)
"""
    configure(tmp_path, start_step=1, stop_step=2)
    run(program)
    there = tmp_path / "dynprof_data" / "rank0_start1_stop2"
    assert steps_of(there) == [1, 2]
    (trace,) = steplens.open(there).traces
    launches = trace.required("kernels").collect()
    assert launches.group_by("step").len()["len"].n_unique() == 1
    assert any("Gradients" in name for name in launches["name"].cast(pl.String))


def test_a_loop_without_an_iterator_has_no_first_step_to_capture(run: Run, tmp_path: Path) -> None:
    """Nothing tells that it begins: the request is refused, which the status says, and the second step can be had."""
    program = """
from steplens.mindspore import DynamicProfilerMonitor
mode("graph")
step = stepper()
monitor = DynamicProfilerMonitor("dyn_cfg", "dynprof_data")
for number in range(4):
    step(ms.Tensor(np.zeros([2, 8], np.float32)), ms.Tensor(np.zeros([2], np.int32))).asnumpy()
    monitor.step()
"""
    configure(tmp_path, start_step=1, stop_step=1)
    run(program)
    assert not list((tmp_path / "dynprof_data").glob("rank*"))
    shown = CliRunner().invoke(app, ["status", str(tmp_path / "dyn_cfg")])
    assert "refused: start_step 1 is not after the step that runs" in " ".join(shown.output.split())
    configure(tmp_path, start_step=2, stop_step=2)
    run(program)
    assert steps_of(tmp_path / "dynprof_data" / "rank0_start2_stop2") == [2]


def assert_only_the_closing_line(stderr: str, folder: Path) -> None:
    """All that steplens says of a recording in which nothing is wrong."""
    (line,) = [line for line in stderr.splitlines() if "steplens" in line]
    assert line.startswith(f"steplens: the recorded steps are in {folder}; next: ") and f"summary {folder} (in the" in line


@pytest.mark.parametrize("mode", ["pynative", pytest.param("graph", marks=LONG)])
def test_environment_variable(tmp_path: Path, mode: str) -> None:
    options = {
        "start": True, "output_path": str(tmp_path / "result"), "profile_memory": True, "profile_communication": False,
        "aicore_metrics": 0, "l2_cache": False,
    }  # fmt: skip
    program = NET.replace("from steplens.mindspore import DynamicProfilerMonitor", "").replace(
        'profile_callback = DynamicProfilerMonitor(cfg_path="./dyn_cfg", output_path="./dynprof_data")', ""
    ).replace(", callbacks=[profile_callback]", "")  # fmt: skip
    if mode == "pynative":
        program = program.replace("GRAPH_MODE", "PYNATIVE_MODE")
    made = run_program(tmp_path, program, MS_PROFILER_OPTIONS=json.dumps(options))
    assert steps_of(tmp_path / "result") == list(range(1, 21))
    assert files(tmp_path / "result" / "profiler") == (GRAPH if mode == "graph" else FLAT) | {"cpu_ms_memory_record_0.txt"}
    info = json.loads((tmp_path / "result" / "profiler" / "profiler_info_0.json").read_text())
    assert info["context_mode"] == mode and info["ms_version"].startswith("2.")
    assert_only_the_closing_line(made.stderr, tmp_path / "result" / "profiler")
    assert "ERROR" not in made.stderr


def test_environment_variable_of_the_newer_interface(tmp_path: Path) -> None:
    options = {"start": True, "output_path": str(tmp_path / "result"), "activities": ["CPU"], "record_shapes": True}
    program = NET.replace("callbacks=[profile_callback]", "callbacks=[]")
    run_program(tmp_path, program, MS_PROFILER_OPTIONS=json.dumps(options))
    (made,) = (tmp_path / "result").glob("*_ascend_ms")
    assert {"trace_view.json", "step_trace_time.csv", "operator_details.csv"} <= files(made / "ASCEND_PROFILER_OUTPUT")


NEWER = """
from steplens.mindspore import (ProfilerActivity, ProfilerLevel, _ExperimentalConfig, mstx, profile, schedule,
                                tensorboard_trace_handler)
mode(sys.argv[1])
step = stepper()
with profile(
    activities=[ProfilerActivity.CPU],
    profile_memory=True,
    record_shapes=True,
    schedule=schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1),
    on_trace_ready=tensorboard_trace_handler("result", worker_name="worker"),
    experimental_config=_ExperimentalConfig(mstx=True, profiler_level=ProfilerLevel.Level0, data_simplification=False),
) as prof:
    prof.add_metadata("who", "somebody")
    for batch in pipeline(12).create_dict_iterator(num_epochs=1):
        mark = mstx.range_start("step")
        step(batch["data"], batch["label"])
        mstx.range_end(mark)
        prof.step()
"""


@pytest.mark.parametrize("mode", ["pynative", pytest.param("graph", marks=LONG)])
def test_newer_interface_with_a_schedule(run: Run, tmp_path: Path, mode: str) -> None:
    made = run(NEWER, mode)
    assert_only_the_closing_line(made.stderr, tmp_path / "result")
    assert "already started" not in made.stderr
    found = sorted((tmp_path / "result").iterdir())
    assert [path.name.startswith("worker_") and path.name.endswith("_ascend_ms") for path in found] == [True, True]
    numbers = [steps_of(path) for path in found]
    assert numbers == [[3, 4], [7, 8]]
    for path in found:
        output = path / "ASCEND_PROFILER_OUTPUT"
        assert {"trace_view.json", "step_trace_time.csv", "memory_record.csv", "operator_details.csv"} <= files(output)
        assert json.loads((path / "profiler_metadata.json").read_text())["who"] == "somebody"
        (trace,) = steplens.open(path).traces
        marks = trace.required("marks").collect()
        assert marks["message"].cast(pl.String).to_list() == ["step", "step"]
        assert isinstance(json.loads((output / "trace_view.json").read_bytes()), list)


@pytest.mark.parametrize("mode", ONE_MODE)
def test_newer_interface_keeps_its_steps_when_the_raw_data_is_removed(run: Run, tmp_path: Path, mode: str) -> None:
    """Simplification is the default: the timeline itself has to tell the steps, also to other tools."""
    run(NEWER.replace("data_simplification=False", "data_simplification=True"), mode)
    found = sorted((tmp_path / "result").iterdir())
    assert not any((path / "FRAMEWORK").exists() for path in found)
    assert [steps_of(path) for path in found] == [[3, 4], [7, 8]]
    for path in found:
        events = json.loads((path / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_bytes())
        told = {event["name"]: event["dur"] for event in events if event["name"].startswith("ProfilerStep#")}
        run_of = steplens.open(path)
        rows = run_of.steps()
        assert {f"ProfilerStep#{row['step']}": row["duration_ns"] / 1000 for row in rows.iter_rows(named=True)} == told
        assert (rows["backward_ns"] > 0).all() if mode == "graph" else True


def test_newer_interface_without_a_schedule(run: Run, tmp_path: Path) -> None:
    run(
        """
from steplens.mindspore import analyse, profile, tensorboard_trace_handler
mode("graph")
prof = profile(start_profile=False, data_process=True, on_trace_ready=tensorboard_trace_handler("result", analyse_flag=False))
prof.start()
prof.start()
model().train(1, pipeline(5), dataset_sink_mode=False)
prof.stop()
analyse("result", pretty=True, data_simplification=False)
"""
    )
    (made,) = (tmp_path / "result").glob("*_ascend_ms")
    assert steps_of(made) == [1, 2, 3, 4, 5]
    assert {"trace_view.json", "minddata_pipeline_raw_0.csv"} <= files(made / "ASCEND_PROFILER_OUTPUT")


def test_an_asynchronous_analysis_ends_with_the_program(run: Run, tmp_path: Path) -> None:
    begin = time.time()
    run(
        """
from steplens.mindspore import Profiler
mode("graph")
profiler = Profiler(output_path="result")
model().train(1, pipeline(3), dataset_sink_mode=False)
profiler.analyse(mode="async")
"""
    )
    info = tmp_path / "result" / "profiler" / "profiler_info_0.json"
    assert info.stat().st_mtime >= begin
    assert files(tmp_path / "result" / "profiler") == GRAPH


def test_a_window_behind_an_asynchronous_analysis_is_kept(run: Run, tmp_path: Path) -> None:
    """The analysis that runs removes raw data at its end: not that of the window that is recorded meanwhile."""
    made = run(
        """
from steplens.mindspore import Profiler
mode("graph")
profiler = Profiler(output_path="result", start_profile=False)
step = stepper()
for number, batch in enumerate(pipeline(12).create_dict_iterator(num_epochs=1), 1):
    if number in (3, 6):
        profiler.start()
    step(batch["data"], batch["label"])
    if number == 5:
        profiler.stop()
        profiler.analyse(mode="async")
    if number == 8:
        time.sleep(3)
profiler.stop()
profiler.analyse()
"""
    )
    assert steps_of(tmp_path / "result") == [6, 7, 8, 9, 10, 11, 12]
    assert made.stderr.count("the next analysis overwrites them") == 1


def test_a_result_has_no_file_of_an_older_one(run: Run, tmp_path: Path) -> None:
    made = run(
        """
from steplens.mindspore import Profiler
mode("graph")
for data_process in (True, False):
    profiler = Profiler(output_path="result", data_process=data_process)
    model().train(1, pipeline(3), dataset_sink_mode=False)
    profiler.analyse()
    print(sorted(name for name in os.listdir("result/profiler") if name.startswith(("pipeline_", "dataset_"))))
"""
    )
    first, second = map(str.strip, made.stdout.strip().splitlines()[-2:])
    assert "pipeline_profiling_0.json" in first and second == "[]"
    assert "holds results already; they are overwritten" in made.stderr
    assert files(tmp_path / "result" / "profiler") == GRAPH


def test_a_running_training_is_captured_by_the_trigger_command(run: Run, tmp_path: Path) -> None:
    """``steplens trigger`` and ``steplens status`` serve MindSpore as they serve PyTorch."""
    program = """
import subprocess
from steplens.mindspore import DynamicProfilerMonitor
mode("graph")

class Slow(ms.Callback):
    def on_train_step_end(self, run_context):
        # each step takes the processor from the command that asks for one
        time.sleep(0.1)
        if run_context.original_args().cur_step_num == 3:
            steplens = [sys.executable, "-m", "steplens"]
            self.trigger = subprocess.Popen([*steplens, "trigger", "dyn_cfg", "--steps", "3", "--analyse"])
        if run_context.original_args().cur_step_num > 5 and self.trigger.poll() is not None:
            run_context.request_stop()

slow = Slow()
# MindSpore counts them first, by making each
model().train(1, pipeline(5_000), callbacks=[DynamicProfilerMonitor("dyn_cfg", "dynprof_data"), slow], dataset_sink_mode=False)
print("trigger ended with", slow.trigger.wait())
"""
    made = run(program)
    assert "trigger ended with 0" in made.stdout, made.stdout + made.stderr
    (there,) = (tmp_path / "dynprof_data").iterdir()
    first, last = (int(number) for number in re.findall(r"start(\d+)_stop(\d+)", there.name)[0])
    assert last == first + 2 > 3
    assert steps_of(there) == [first, first + 1, last]
